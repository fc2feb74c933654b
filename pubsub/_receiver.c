/* Receives datagrams with few system calls: recvmmsg(2), with UDP_GRO for runs. Linux.

   inlet.py says what a burst is, and has the same in Python. */

#define _GNU_SOURCE
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MESSAGES_MAX 64         /* of a call */
#define FEW_MESSAGES 4          /* of a call, where they may be long */
#define LONG_MESSAGE_BYTES 4096
#define MESSAGE_BYTES_MAX 65536 /* inlet.py */
#define MESSAGE_BYTES_MIN 128   /* inlet.py: that a message counts for */
#define SOCKET_TIMESTAMPNS 35   /* SO_TIMESTAMPNS, asm-generic/socket.h */
#define UDP_GRO 104             /* linux/udp.h */

/* A datagram, or a run of them. */
typedef struct {
    Py_ssize_t size, segment_bytes;
    long long kernel_ns;
} Run;

/* Of one call at a time: it does not block, and holds Python's lock. What no message has filled is never touched,
   so most of it is not in memory. */
static struct {
    struct mmsghdr messages[MESSAGES_MAX];
    struct iovec pieces[MESSAGES_MAX];
    struct sockaddr_in6 sources[MESSAGES_MAX]; /* or sockaddr_in, which is shorter */
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct timespec))];
    } controls[MESSAGES_MAX];
    char data[MESSAGES_MAX][MESSAGE_BYTES_MAX];
} call;

/* Makes one call. Returns the number of messages, or -1 with errno set. */
static int receive_messages(int descriptor, unsigned int messages_max)
{
    for (unsigned int at = 0; at < messages_max; ++at) {
        call.pieces[at] = (struct iovec){call.data[at], sizeof call.data[at]};
        struct msghdr *header = &call.messages[at].msg_hdr;
        memset(header, 0, sizeof *header);
        header->msg_name = &call.sources[at];
        header->msg_namelen = sizeof call.sources[at];
        header->msg_iov = &call.pieces[at];
        header->msg_iovlen = 1;
        header->msg_control = call.controls[at].space;
        header->msg_controllen = sizeof call.controls[at].space;
    }
    int count;
    do
        count = recvmmsg(descriptor, call.messages, messages_max, MSG_DONTWAIT, NULL);
    while (count < 0 && errno == EINTR);
    return count;
}

/* Reads what the kernel tells of a message. */
static Run read_run(int at)
{
    struct msghdr *header = &call.messages[at].msg_hdr;
    Run run = {(Py_ssize_t)call.messages[at].msg_len, (Py_ssize_t)call.messages[at].msg_len, 0};
    for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control; control = CMSG_NXTHDR(header, control)) {
        if (control->cmsg_level == IPPROTO_UDP && control->cmsg_type == UDP_GRO) {
            int segment_bytes;
            memcpy(&segment_bytes, CMSG_DATA(control), sizeof segment_bytes);
            if (segment_bytes > 0)
                run.segment_bytes = segment_bytes;
        } else if (control->cmsg_level == SOL_SOCKET && control->cmsg_type == SOCKET_TIMESTAMPNS) {
            struct timespec told;
            memcpy(&told, CMSG_DATA(control), sizeof told);
            run.kernel_ns = (long long)told.tv_sec * 1000000000 + told.tv_nsec;
        }
    }
    return run;
}

static int is_link_local(int at)
{
    return call.sources[at].sin6_family == AF_INET6 && call.sources[at].sin6_scope_id != 0;
}

/* Whether two messages have one source; those of a socket are all of one family. */
static int same_source(int one, int other)
{
    const struct sockaddr_in6 *first = &call.sources[one], *second = &call.sources[other];
    if (first->sin6_family != AF_INET6)
        return memcmp(first, second, offsetof(struct sockaddr_in, sin_zero)) == 0;
    return first->sin6_port == second->sin6_port && first->sin6_scope_id == second->sin6_scope_id &&
           memcmp(&first->sin6_addr, &second->sin6_addr, sizeof first->sin6_addr) == 0;
}

/* Returns an address as `Address`, IPv4 that is mapped as IPv4. */
static PyObject *make_address(int at)
{
    char host[INET6_ADDRSTRLEN];
    const struct sockaddr_in6 *ipv6 = &call.sources[at];
    const struct sockaddr_in *ipv4 = (const struct sockaddr_in *)ipv6;
    const char *text;
    if (ipv6->sin6_family != AF_INET6)
        text = inet_ntop(AF_INET, &ipv4->sin_addr, host, sizeof host);
    else if (IN6_IS_ADDR_V4MAPPED(&ipv6->sin6_addr))
        text = inet_ntop(AF_INET, &ipv6->sin6_addr.s6_addr[12], host, sizeof host);
    else
        text = inet_ntop(AF_INET6, &ipv6->sin6_addr, host, sizeof host);
    if (text == NULL)
        return PyErr_SetFromErrno(PyExc_OSError);
    return Py_BuildValue("(si)", text, (int)ntohs(ipv6->sin6_port)); /* where sockaddr_in has its port, too */
}

/* Returns, of messages that begin with this one, how many are one burst, and sets that burst's run. */
static int join_runs(int first, int end, int is_joining, Run *joined)
{
    *joined = read_run(first);
    int at = first + 1;
    /* The last datagram of a burst may be shorter than the others, so nothing comes behind a shorter one. */
    while (is_joining && at < end && joined->segment_bytes > 0 && joined->size % joined->segment_bytes == 0 &&
           call.data[first][0] != '%' && call.data[at][0] != '%' && same_source(first, at)) {
        Run next = read_run(at);
        Py_ssize_t size = joined->size + next.size;
        if (next.segment_bytes > joined->segment_bytes || next.size < 1 || size > MESSAGE_BYTES_MAX ||
            (next.segment_bytes < joined->segment_bytes && next.size > next.segment_bytes))
            break;
        joined->size = size;
        ++at;
    }
    return at - first;
}

/* Adds messages that are one burst to a list. Returns false with an exception set. */
static int add_burst(PyObject *bursts, PyObject *make_burst, int first, int count, const Run *run)
{
    PyObject *data = PyBytes_FromStringAndSize(NULL, run->size);
    PyObject *source = data ? make_address(first) : NULL;
    if (source == NULL) {
        Py_XDECREF(data);
        return 0;
    }
    char *to = PyBytes_AsString(data);
    for (int at = first; at < first + count; ++at) {
        memcpy(to, call.data[at], call.messages[at].msg_len);
        to += call.messages[at].msg_len;
    }
    /* By tuple.__new__: that of a NamedTuple is in Python. */
    PyObject *fields = Py_BuildValue("((NnNL))", data, run->segment_bytes, source, run->kernel_ns);
    newfunc make = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *burst = fields ? make((PyTypeObject *)make_burst, fields, NULL) : NULL;
    Py_XDECREF(fields);
    int is_added = burst != NULL && PyList_Append(bursts, burst) == 0;
    Py_XDECREF(burst);
    return is_added;
}

static PyObject *receive(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int descriptor, is_joining, error = 0;
    Py_ssize_t bursts_max, bytes_max, size_bytes = 0, link_local_count = 0;
    PyObject *make_burst;
    if (!PyArg_ParseTuple(arguments, "innpO:receive", &descriptor, &bursts_max, &bytes_max, &is_joining, &make_burst))
        return NULL;
    if (!PyType_Check(make_burst) || !PyType_IsSubtype((PyTypeObject *)make_burst, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "make_burst: give Burst");
        return NULL;
    }
    PyObject *bursts = PyList_New(0);
    unsigned int wanted = FEW_MESSAGES;
    while (bursts != NULL && PyList_Size(bursts) < bursts_max && size_bytes < bytes_max && error == 0) {
        Py_ssize_t left = bursts_max - PyList_Size(bursts);
        if (!is_joining && left < (Py_ssize_t)wanted)
            wanted = (unsigned int)left;
        int count = receive_messages(descriptor, wanted);
        if (count < 0)
            error = errno;
        Py_ssize_t before_bytes = size_bytes;
        for (int at = 0; at < count; ++at) {
            Py_ssize_t size = (Py_ssize_t)call.messages[at].msg_len;
            size_bytes += size > MESSAGE_BYTES_MIN ? size : MESSAGE_BYTES_MIN;
        }
        for (int at = 0, joined; at < count; at += joined) {
            Run run;
            joined = join_runs(at, count, is_joining, &run);
            if (is_link_local(at))
                link_local_count += run.segment_bytes ? (run.size + run.segment_bytes - 1) / run.segment_bytes : 1;
            else if (!add_burst(bursts, make_burst, at, joined, &run)) {
                Py_CLEAR(bursts);
                break;
            }
        }
        if (count >= 0 && count < (int)wanted)
            error = EAGAIN; /* as the next call would say */
        wanted = size_bytes - before_bytes < count * LONG_MESSAGE_BYTES ? MESSAGES_MAX : FEW_MESSAGES;
    }
    return bursts ? Py_BuildValue("Nin", bursts, error, link_local_count) : NULL;
}

static PyMethodDef functions[] = {
    {"receive", receive, METH_VARARGS,
     "receive(descriptor, bursts_max, bytes_max, is_joining, make_burst): returns bursts, the errno that ended it (0 if\n"
     "more may have arrived), and the number of datagrams from link-local addresses that it has dropped."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kcast.pubsub._receiver",
    .m_doc = "Receives datagrams with few system calls.",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__receiver(void)
{
    return PyModuleDef_Init(&definition);
}
