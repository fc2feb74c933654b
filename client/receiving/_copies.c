/* Takes copies of usual messages in native code. PROTOCOL section 9.

   This is a part of the twin of deliveries.py, which says what is made of copies, and why. It takes the usual ones,
   one after the other: in an envelope without attributes, of a topic that counts, with nothing escaped. At
   any other line it stops and says where, and Python takes that one. So both tell the same, in the same order,
   which tests hold them to. It touches no socket and no clock. What is remembered stays in Python's own containers.

   Memory. It keeps nothing from one call to the next. No length comes from what arrived: lines end where LF is
   found, and what is read of a line ends at the line's end at the latest.

   It is built for the limited API: one build serves all versions of Python from 3.11 on. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#define PUBLISHER_CHARS_MAX 43 /* envelope.py */
#define SEQ_DIGITS_MAX 18
#define ENTRY_BYTES 250        /* dedup.py: memory beside a line */
#define DELIVERY_BYTES 350     /* dedup.py: memory of an open delivery of a raw line */

/* --- Lines ----------------------------------------------------------------------------------------------- */

typedef struct {
    const char *start, *end; /* without LF */
    const char *topic_end;
    const char *publisher, *publisher_end;
    long long seq;
    const char *payload;
} Line;

static int is_name_char(char byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z')
           || byte == '-' || byte == '_';
}

/* Whether a byte stands for itself in a payload (wire.py: neither % nor a control byte). */
static int is_plain(char byte)
{
    unsigned char value = (unsigned char)byte;
    return value >= ' ' && value != '%' && value != 0x7F;
}

/* Takes a line apart that goes from `start` to `end`. Returns false if it is not a usual message. */
static int read_line(const char *start, const char *end, Line *line)
{
    const char *at = memchr(start, ' ', (size_t)(end - start));
    if (at == NULL || at == start || start[0] == '%')
        return 0; /* without a message, or a topic in which much is escaped: so it may be a control line */
    line->start = start;
    line->end = end;
    line->topic_end = at++;
    if (end - at < 2 || at[0] != '%' || at[1] != '@')
        return 0;
    at += 2;
    line->publisher = at;
    while (at < end && is_name_char(*at))
        ++at;
    line->publisher_end = at;
    Py_ssize_t publisher_chars = at - line->publisher;
    if (publisher_chars < 1 || publisher_chars > PUBLISHER_CHARS_MAX || at == end || *at != '.')
        return 0;
    const char *digits = ++at;
    for (line->seq = 0; at < end && *at >= '0' && *at <= '9' && at - digits < SEQ_DIGITS_MAX; ++at)
        line->seq = 10 * line->seq + (*at - '0');
    if (at == digits || *digits == '0' || at == end || *at != ' ')
        return 0;
    line->payload = ++at;
    while (at < end && is_plain(*at))
        ++at;
    return at == end;
}

static int is_same(const char *one, const char *one_end, const char *other, const char *other_end)
{
    return other != NULL && one_end - one == other_end - other && memcmp(one, other, (size_t)(one_end - one)) == 0;
}

/* --- A call ---------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *name_of;   /* of a topic's wire form: its name, or None if it does not count */
    PyObject *seen;      /* OrderedDict: of each line the time of its last copy, the oldest first */
    PyObject *move_to_end, *popitem; /* of `seen`, owned */
    Py_ssize_t count_max, size_bytes_max, size_bytes;
    PyObject *now, *received_at, *server;
    PyObject *make;      /* makes a Delivery of a tuple */
    PyObject *told;      /* list of deliveries */
    PyObject *numbers;   /* dict: of a topic's name and a publisher the list of numbers that were told */
    Py_ssize_t copies, duplicates, deliveries;

    /* Of the last line. */
    const char *topic, *topic_end, *publisher, *publisher_end;
    PyObject *name, *publisher_name, *its_numbers; /* owned */
    int is_own; /* whether the topic is kcast's own, whose deliveries are no user's */
} Call;

/* Replaces a reference by one that is owned. Returns whether there is one. */
static int keep(PyObject **place, PyObject *object)
{
    Py_XDECREF(*place);
    *place = object;
    return object != NULL;
}

/* Finds the name of a line's topic; of successive lines of one topic only the first is looked up. Returns 1, 0 if
   the topic does not count, -1 with an exception set. */
static int find_name(Call *call, const Line *line)
{
    if (!is_same(line->start, line->topic_end, call->topic, call->topic_end)) {
        PyObject *topic = PyBytes_FromStringAndSize(line->start, line->topic_end - line->start);
        if (topic == NULL)
            return -1;
        PyObject *name = PyObject_CallFunctionObjArgs(call->name_of, topic, NULL);
        Py_DECREF(topic);
        call->topic = NULL;
        call->publisher = NULL; /* its numbers are those of a topic */
        if (!keep(&call->name, name))
            return -1;
        if (PyBytes_Check(name)) {
            call->is_own = PyBytes_Size(name) > 0 && PyBytes_AsString(name)[0] == '\0';
            call->topic = line->start;
            call->topic_end = line->topic_end;
        }
    }
    return call->topic != NULL;
}

/* Finds the publisher's name, and the list of the numbers. Returns false with an exception set. */
static int find_publisher(Call *call, const Line *line)
{
    if (is_same(line->publisher, line->publisher_end, call->publisher, call->publisher_end))
        return 1;
    call->publisher = NULL;
    Py_ssize_t chars = line->publisher_end - line->publisher;
    if (!keep(&call->publisher_name, PyUnicode_FromStringAndSize(line->publisher, chars)))
        return 0;
    PyObject *key = PyTuple_Pack(2, call->name, call->publisher_name);
    if (key == NULL)
        return 0;
    PyObject *found = PyDict_GetItemWithError(call->numbers, key);
    Py_XINCREF(found);
    int is_done = found != NULL;
    if (!is_done && !PyErr_Occurred()) {
        found = PyList_New(0);
        is_done = found != NULL && PyDict_SetItem(call->numbers, key, found) == 0;
    }
    Py_DECREF(key);
    keep(&call->its_numbers, found);
    if (is_done && !PyList_Check(found)) {
        PyErr_SetString(PyExc_TypeError, "numbers: give a dict of lists");
        is_done = 0;
    }
    if (!is_done)
        return 0;
    call->publisher = line->publisher;
    call->publisher_end = line->publisher_end;
    return 1;
}

/* --- What is remembered ---------------------------------------------------------------------------------- */

/* Forgets the line whose last copy is the oldest. Returns false with an exception set. */
static int forget_oldest(Call *call)
{
    PyObject *item = PyObject_CallFunctionObjArgs(call->popitem, Py_False, NULL);
    if (item == NULL)
        return 0;
    PyObject *line, *value;
    int is_done = PyArg_ParseTuple(item, "SO", &line, &value);
    if (is_done) {
        call->size_bytes -= PyBytes_Size(line) + ENTRY_BYTES;
        if (!PyFloat_Check(value)) { /* a raw line, with its open deliveries */
            PyObject *open = PyObject_GetAttrString(value, "open");
            Py_ssize_t count = open == NULL ? -1 : PyObject_Size(open);
            Py_XDECREF(open);
            call->size_bytes -= count * DELIVERY_BYTES;
            is_done = count >= 0;
        }
    }
    Py_DECREF(item);
    return is_done;
}

/* Makes room for a new line. Returns false with an exception set. */
static int make_room(Call *call, Py_ssize_t size_bytes)
{
    Py_ssize_t count = PyDict_Size(call->seen);
    while (count > 0 && (count >= call->count_max || call->size_bytes > call->size_bytes_max - size_bytes)) {
        if (!forget_oldest(call))
            return 0;
        count = PyDict_Size(call->seen);
    }
    return count >= 0;
}

/* Remembers a line. Returns 1 if it is new, 0 if not, and -1 with an exception set. */
static int remember(Call *call, PyObject *text)
{
    if (PyDict_GetItemWithError(call->seen, text) != NULL) {
        PyObject *none = PyObject_CallFunctionObjArgs(call->move_to_end, text, NULL);
        Py_XDECREF(none);
        return none == NULL || PyObject_SetItem(call->seen, text, call->now) < 0 ? -1 : 0;
    }
    Py_ssize_t size_bytes = PyBytes_Size(text) + ENTRY_BYTES;
    if (PyErr_Occurred() || !make_room(call, size_bytes))
        return -1;
    call->size_bytes += size_bytes;
    return PyObject_SetItem(call->seen, text, call->now) < 0 ? -1 : 1;
}

/* --- What is told ---------------------------------------------------------------------------------------- */

/* Tells a delivery of a line. Returns false with an exception set. */
static int tell(Call *call, const Line *line)
{
    if (!find_publisher(call, line))
        return 0;
    PyObject *seq = PyLong_FromLongLong(line->seq);
    PyObject *payload = PyBytes_FromStringAndSize(line->payload, line->end - line->payload);
    PyObject *attributes = PyDict_New(), *fields = NULL, *delivery = NULL;
    if (seq != NULL && payload != NULL && attributes != NULL)
        fields = PyTuple_Pack(10, call->name, payload, call->server, call->publisher_name, seq, attributes,
                              call->received_at, Py_None, Py_None, Py_None);
    if (fields != NULL)
        delivery = PyObject_CallFunctionObjArgs(call->make, fields, NULL);
    int is_done = delivery != NULL && PyList_Append(call->told, delivery) == 0;
    is_done = is_done && PyList_Append(call->its_numbers, seq) == 0;
    call->deliveries += is_done && !call->is_own;
    Py_XDECREF(delivery);
    Py_XDECREF(fields);
    Py_XDECREF(attributes);
    Py_XDECREF(payload);
    Py_XDECREF(seq);
    return is_done;
}

/* Takes a line. Returns 1, 0 if it is left to Python, or -1 with an exception set. */
static int take_line(Call *call, const char *start, const char *end)
{
    Line line;
    if (!read_line(start, end, &line))
        return 0;
    int counts = find_name(call, &line);
    if (counts <= 0)
        return counts;
    PyObject *text = PyBytes_FromStringAndSize(start, end - start);
    int is_new = text == NULL ? -1 : remember(call, text);
    Py_XDECREF(text);
    if (is_new < 0)
        return -1;
    call->copies += 1;
    call->duplicates += !is_new;
    return !is_new || tell(call, &line) ? 1 : -1;
}

/* --- The module ------------------------------------------------------------------------------------------ */

static PyObject *take(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *data;
    Py_ssize_t at;
    Call call = {NULL};
    if (!PyArg_ParseTuple(arguments, "SnOOnnnOOOOO!O!:take", &data, &at, &call.name_of, &call.seen, &call.count_max,
                          &call.size_bytes_max, &call.size_bytes, &call.now, &call.received_at, &call.server,
                          &call.make, &PyList_Type, &call.told, &PyDict_Type, &call.numbers))
        return NULL;
    char *text;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &text, &size) < 0)
        return NULL;
    if (!PyDict_Check(call.seen) || at < 0) {
        PyErr_SetString(PyExc_ValueError, "seen: give an OrderedDict; start: give 0 or more");
        return NULL;
    }
    call.move_to_end = PyObject_GetAttrString(call.seen, "move_to_end");
    call.popitem = PyObject_GetAttrString(call.seen, "popitem");
    int is_taken = call.move_to_end == NULL || call.popitem == NULL ? -1 : 1;
    while (is_taken > 0 && at < size) {
        if (text[at] == '\n') {
            ++at;
            continue;
        }
        const char *end = memchr(text + at, '\n', (size_t)(size - at));
        is_taken = end == NULL ? 0 : take_line(&call, text + at, end);
        if (is_taken > 0)
            at = end - text + 1;
    }
    Py_XDECREF(call.move_to_end);
    Py_XDECREF(call.popitem);
    Py_XDECREF(call.name);
    Py_XDECREF(call.publisher_name);
    Py_XDECREF(call.its_numbers);
    if (is_taken < 0)
        return NULL;
    return Py_BuildValue("nnnnn", at, call.size_bytes, call.copies, call.duplicates, call.deliveries);
}

static PyMethodDef functions[] = {
    {"take", take, METH_VARARGS, "Takes copies of usual messages, and stops at the first line that is none."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kcast.client.receiving._copies",
    .m_doc = "The twin of a part of kcast.client.receiving.deliveries in native code.",
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__copies(void)
{
    return PyModuleDef_Init(&definition);
}
