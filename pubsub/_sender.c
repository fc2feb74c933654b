/* Sends datagrams with few system calls: sendmmsg(2), with UDP_SEGMENT for runs. Linux.

   outlet.py says what is sent, and deals with what fails: this returns at the first failure, and goes on behind it
   when it is called again. */

#define _GNU_SOURCE
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#define MESSAGES_MAX 64       /* of a call: so many stand on the stack */
#define SEGMENTS_MAX 64       /* outlet.py */
#define PIECE_BYTES_MAX 65507 /* outlet.py: CALL_BYTES_MAX */
#define UDP_SEGMENT 103       /* linux/udp.h */

/* A place in what is to be sent: a transmit, one of its destinations, and a byte of its data. */
typedef struct {
    Py_ssize_t transmit, destination, start;
} Place;

/* A transmit, taken apart. All is borrowed. */
typedef struct {
    char *data;
    Py_ssize_t size, segment_bytes, piece_bytes, destination_count;
    PyObject *destinations;
} Transmit;

typedef struct {
    struct mmsghdr messages[MESSAGES_MAX];
    struct iovec pieces[MESSAGES_MAX];
    struct sockaddr_in6 addresses[MESSAGES_MAX]; /* or sockaddr_in, which is shorter */
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(uint16_t))];
    } controls[MESSAGES_MAX];
    Place places[MESSAGES_MAX];
    unsigned int count;
} Call;

/* Takes a transmit apart. Returns false with an exception set. */
static int read_transmit(PyObject *transmits, Py_ssize_t index, Transmit *transmit)
{
    PyObject *parts = PyList_GetItem(transmits, index);
    if (parts == NULL || !PyTuple_Check(parts) || PyTuple_Size(parts) < 3)
        goto wrong;
    PyObject *segment_bytes = PyTuple_GetItem(parts, 1);
    transmit->destinations = PyTuple_GetItem(parts, 2);
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(parts, 0), &transmit->data, &transmit->size) < 0)
        return 0;
    transmit->segment_bytes = PyLong_AsSsize_t(segment_bytes);
    if (transmit->segment_bytes == -1 && PyErr_Occurred())
        return 0;
    if (PyTuple_Check(transmit->destinations))
        transmit->destination_count = PyTuple_Size(transmit->destinations);
    else if (PyList_Check(transmit->destinations))
        transmit->destination_count = PyList_Size(transmit->destinations);
    else
        goto wrong;
    if (transmit->segment_bytes < 1 || transmit->segment_bytes > PIECE_BYTES_MAX)
        goto wrong;
    Py_ssize_t segments = PIECE_BYTES_MAX / transmit->segment_bytes;
    transmit->piece_bytes = (segments < SEGMENTS_MAX ? segments : SEGMENTS_MAX) * transmit->segment_bytes;
    return 1;
wrong:
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "transmits: give a list of Transmit, each to a list or tuple of addresses");
    return 0;
}

/* Writes an address in the form of the socket's family, IPv4 as mapped IPv6 where need be. Returns its length, 0 if
   the family does not have it, or -1 with an exception set. */
static int write_address(PyObject *address, int is_ipv6, struct sockaddr_in6 *to)
{
    if (address == NULL || !PyTuple_Check(address) || PyTuple_Size(address) < 2) {
        PyErr_SetString(PyExc_TypeError, "address: give an IP address and a port");
        return -1;
    }
    const char *host = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(address, 0), NULL);
    long port = host ? PyLong_AsLong(PyTuple_GetItem(address, 1)) : -1;
    if (port < 0 || port > UINT16_MAX) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_OverflowError, "port: give 0 to 65535");
        return -1;
    }
    memset(to, 0, sizeof *to);
    if (!is_ipv6) {
        struct sockaddr_in *ipv4 = (struct sockaddr_in *)to;
        ipv4->sin_family = AF_INET;
        ipv4->sin_port = htons((uint16_t)port);
        return inet_pton(AF_INET, host, &ipv4->sin_addr) == 1 ? (int)sizeof *ipv4 : 0;
    }
    to->sin6_family = AF_INET6;
    to->sin6_port = htons((uint16_t)port);
    if (inet_pton(AF_INET6, host, &to->sin6_addr) == 1)
        return (int)sizeof *to;
    memset(&to->sin6_addr.s6_addr[10], 0xFF, 2);
    return inet_pton(AF_INET, host, &to->sin6_addr.s6_addr[12]) == 1 ? (int)sizeof *to : 0;
}

/* Adds a piece of a transmit to a call. Returns as `write_address`. */
static int add_message(Call *call, const Transmit *transmit, const Place *place, int is_ipv6)
{
    unsigned int at = call->count;
    PyObject *destinations = transmit->destinations;
    PyObject *address = PyTuple_Check(destinations) ? PyTuple_GetItem(destinations, place->destination)
                                                    : PyList_GetItem(destinations, place->destination);
    int address_bytes = write_address(address, is_ipv6, &call->addresses[at]);
    if (address_bytes <= 0)
        return address_bytes;
    Py_ssize_t left = transmit->size - place->start;
    Py_ssize_t size = left < transmit->piece_bytes ? left : transmit->piece_bytes;
    call->pieces[at] = (struct iovec){transmit->data + place->start, (size_t)size};
    struct msghdr *header = &call->messages[at].msg_hdr;
    memset(header, 0, sizeof *header);
    header->msg_name = &call->addresses[at];
    header->msg_namelen = (socklen_t)address_bytes;
    header->msg_iov = &call->pieces[at];
    header->msg_iovlen = 1;
    if (size > transmit->segment_bytes) {
        uint16_t segment_bytes = (uint16_t)transmit->segment_bytes;
        header->msg_control = call->controls[at].space;
        header->msg_controllen = sizeof call->controls[at].space;
        struct cmsghdr *control = CMSG_FIRSTHDR(header);
        control->cmsg_level = IPPROTO_UDP;
        control->cmsg_type = UDP_SEGMENT;
        control->cmsg_len = CMSG_LEN(sizeof segment_bytes);
        memcpy(CMSG_DATA(control), &segment_bytes, sizeof segment_bytes);
    }
    call->places[at] = *place;
    ++call->count;
    return address_bytes;
}

/* Makes the calls for what was added. Returns 0, or the errno of a failure, whose place it sets. */
static int send_messages(int descriptor, Call *call, Place *failed)
{
    unsigned int sent = 0;
    int error = 0;
    Py_BEGIN_ALLOW_THREADS
    while (sent < call->count && error == 0) {
        int count = sendmmsg(descriptor, call->messages + sent, call->count - sent, MSG_DONTWAIT);
        if (count > 0)
            sent += (unsigned int)count;
        else if (errno != EINTR)
            error = errno;
    }
    Py_END_ALLOW_THREADS
    if (error)
        *failed = call->places[sent];
    call->count = 0;
    return error;
}

static PyObject *send_all(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int descriptor, is_ipv6;
    PyObject *transmits;
    Place place;
    if (!PyArg_ParseTuple(arguments, "ipO(nnn):send_all", &descriptor, &is_ipv6, &transmits, &place.transmit,
                          &place.destination, &place.start))
        return NULL;
    if (!PyList_Check(transmits) || place.transmit < 0 || place.destination < 0 || place.start < 0) {
        PyErr_SetString(PyExc_TypeError, "give a list of Transmit, and a place in it");
        return NULL;
    }
    Call call;
    call.count = 0;
    int error = 0, address_bytes = 1;
    while (place.transmit < PyList_Size(transmits) && error == 0 && address_bytes > 0) {
        Transmit transmit;
        if (!read_transmit(transmits, place.transmit, &transmit))
            return NULL;
        while (place.destination < transmit.destination_count && error == 0 && address_bytes > 0) {
            while (place.start < transmit.size && error == 0) {
                address_bytes = add_message(&call, &transmit, &place, is_ipv6);
                if (address_bytes <= 0)
                    break;
                place.start += transmit.piece_bytes;
                if (call.count == MESSAGES_MAX)
                    error = send_messages(descriptor, &call, &place);
            }
            if (error == 0 && address_bytes > 0) {
                place.start = 0;
                ++place.destination;
            }
        }
        if (error == 0 && address_bytes > 0) {
            place.destination = 0;
            ++place.transmit;
        }
    }
    if (address_bytes < 0)
        return NULL;
    Place unsent = place; /* an address that the family does not have: what stands before it is sent first */
    if (error == 0) {
        error = send_messages(descriptor, &call, &place);
        if (error == 0 && address_bytes == 0) {
            place = unsent;
            error = EAFNOSUPPORT;
        }
    }
    if (error == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("i(nnn)", error, place.transmit, place.destination, place.start);
}

static PyMethodDef functions[] = {
    {"send_all", send_all, METH_VARARGS,
     "send_all(descriptor, is_ipv6, transmits, place): sends all from this place on, a transmit's index, a\n"
     "destination's and a byte. Returns None, or the errno of the first failure and its place."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kcast.pubsub._sender",
    .m_doc = "Sends datagrams with few system calls.",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__sender(void)
{
    return PyModuleDef_Init(&definition);
}
