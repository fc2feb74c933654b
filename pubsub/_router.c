/* Routes publishes in native code. PROTOCOL section 4.3.

   This is the twin of router.py, which says what `survey` and `Packer` do. Both return the same, which tests hold
   them to. It touches no socket, and knows nothing of leases: routes come from Python.

   Memory. A packer keeps the texts that it was given, and remembers of each line where it stands in them. No
   length comes from what arrived: lines end where LF is found within a text, or at its end. */

#define Py_LIMITED_API 0x030B0000 /* one build serves Python 3.11 and later */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define DATAGRAM_BYTES_MAX 1200 /* limits.py */
#define COUNT_MAX UINT32_MAX    /* of lines, and of subscribers, in a packer */

/* --- Arrays that grow ------------------------------------------------------------------------------------ */

typedef struct {
    void *items;
    size_t count, capacity;
} Array;

/* Makes room for one more item. Returns false, with an exception set, if there is no memory. */
static int has_room(Array *array, size_t item_bytes)
{
    if (array->count < array->capacity)
        return 1;
    size_t capacity = array->capacity ? 2 * array->capacity : 8;
    void *items = capacity < COUNT_MAX ? PyMem_Realloc(array->items, capacity * item_bytes) : NULL;
    if (items == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    array->items = items;
    array->capacity = capacity;
    return 1;
}

static void free_array(Array *array)
{
    PyMem_Free(array->items);
    *array = (Array){NULL, 0, 0};
}

/* --- Lines ----------------------------------------------------------------------------------------------- */

typedef struct {
    const char *start;
    Py_ssize_t size;       /* without LF */
    Py_ssize_t topic_size; /* what stands before the first space; the whole line where there is none */
    int has_same_topic;    /* as the line before */
} Line;

/* Finds the next line that is not blank, and sets `at` behind it. `line` has the one before, or zeros. Returns
   false at the end of the text. */
static int next_line(const char **at, const char *end, Line *line)
{
    while (*at < end && **at == '\n')
        ++*at;
    if (*at == end)
        return 0;
    const char *lf = memchr(*at, '\n', (size_t)(end - *at));
    const char *stop = lf ? lf : end;
    Py_ssize_t size = stop - *at, before = line->topic_size;
    line->has_same_topic = line->start != NULL && before < size && (*at)[before] == ' '
                           && memcmp(*at, line->start, (size_t)before) == 0;
    if (!line->has_same_topic) {
        const char *space = memchr(*at, ' ', (size_t)size);
        line->topic_size = (space ? space : stop) - *at;
    }
    line->start = *at;
    line->size = size;
    *at = stop;
    return 1;
}

static int is_hex(char byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'F') || (byte >= 'a' && byte <= 'f');
}

/* Whether it is neither a subscribe line nor a control line (wire.py:is_control). */
static int is_publish(const Line *line)
{
    if (line->topic_size == line->size)
        return 0;
    return line->start[0] != '%' || (line->topic_size >= 3 && is_hex(line->start[1]) && is_hex(line->start[2]));
}

/* Finds the routes of lines, each after the one before; of successive lines of one topic only the first is looked
   up. */
typedef struct {
    PyObject *routes;
    PyObject *route; /* owned */
    Py_ssize_t count; /* of the subscribers that are paid for */
    int is_tuple;
} Finder;

/* Returns whether a route was found; false with an exception set. */
static int find_route(Finder *finder, const Line *line)
{
    if (line->has_same_topic)
        return 1;
    PyObject *topic = PyBytes_FromStringAndSize(line->start, line->topic_size);
    if (topic == NULL)
        return 0;
    PyObject *route = NULL;
    if (PyDict_Check(finder->routes)) {
        route = PyDict_GetItemWithError(finder->routes, topic);
        Py_XINCREF(route);
    }
    if (route == NULL && !PyErr_Occurred())
        route = PyObject_GetItem(finder->routes, topic); /* which makes one that is not there yet */
    Py_DECREF(topic);
    Py_XDECREF(finder->route);
    finder->route = route;
    if (route == NULL)
        return 0;
    finder->is_tuple = PyTuple_Check(route);
    finder->count = finder->is_tuple ? PyTuple_Size(route) : PyObject_Size(route);
    return finder->count >= 0;
}

/* --- survey ---------------------------------------------------------------------------------------------- */

typedef struct {
    unsigned long long lines, copies, size_bytes;
    int is_one_topic;
    Line line; /* the last one */
} Totals;

/* Surveys one datagram. Returns 1, 0 if it has anything but publishes, or -1 with an exception set. */
static int survey_datagram(const char *at, const char *end, Py_ssize_t lines_max, Finder *finder, Totals *totals)
{
    if (end[-1] != '\n')
        return 0;
    Line *line = &totals->line;
    for (Py_ssize_t lines = 0; next_line(&at, end, line); ++lines) {
        if (lines >= lines_max || !is_publish(line))
            return 0;
        if (!find_route(finder, line))
            return -1;
        if (totals->lines > 0 && !line->has_same_topic)
            totals->is_one_topic = 0;
        totals->lines += 1;
        totals->copies += (unsigned long long)finder->count;
        totals->size_bytes += (unsigned long long)line->size * (unsigned long long)finder->count;
    }
    return 1;
}

static PyObject *survey(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *data, *routes;
    Py_ssize_t segment_bytes, lines_max;
    if (!PyArg_ParseTuple(arguments, "SnnO:survey", &data, &segment_bytes, &lines_max, &routes))
        return NULL;
    char *text;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &text, &size) < 0)
        return NULL;
    if (segment_bytes < 1) {
        PyErr_Format(PyExc_ValueError, "segment_bytes is %zd: give 1 or more", segment_bytes);
        return NULL;
    }
    Finder finder = {.routes = routes};
    Totals totals = {.is_one_topic = 1};
    int is_plain = 1;
    for (Py_ssize_t start = 0; is_plain > 0 && start < size; ) {
        Py_ssize_t datagram_bytes = size - start < segment_bytes ? size - start : segment_bytes;
        is_plain = survey_datagram(text + start, text + start + datagram_bytes, lines_max, &finder, &totals);
        start += datagram_bytes;
    }
    Py_XDECREF(finder.route);
    if (is_plain < 0)
        return NULL;
    if (!is_plain || totals.lines == 0)
        Py_RETURN_NONE;
    if (size <= segment_bytes || !totals.is_one_topic || totals.copies == 0 || text[0] == '\n')
        return Py_BuildValue("KKKO", totals.lines, totals.copies, totals.size_bytes, Py_None);
    return Py_BuildValue("KKKy#", totals.lines, totals.copies,
                         totals.copies / totals.lines * (unsigned long long)size, totals.line.start,
                         totals.line.topic_size);
}

/* --- Packer ---------------------------------------------------------------------------------------------- */

typedef struct {
    const char *start;
    Py_ssize_t size;
} Text;

typedef struct {
    PyObject *address; /* owned */
    Array places;      /* uint32_t: of its lines among all lines */
} Subscriber;

typedef struct {
    PyObject_HEAD
    Array lines;         /* Text */
    Array texts;         /* PyObject *, owned: what the lines stand in */
    Array subscribers;   /* Subscriber, in the order in which they came */
    PyObject *number_of; /* dict: the number of each address, among these */
} Packer;

#define LINE(packer, place) (((Text *)(packer)->lines.items)[place])
#define SUBSCRIBER(packer, index) (((Subscriber *)(packer)->subscribers.items)[index])

static void forget_all(Packer *packer)
{
    for (size_t index = 0; index < packer->subscribers.count; ++index) {
        Subscriber *subscriber = &SUBSCRIBER(packer, index);
        Py_DECREF(subscriber->address);
        free_array(&subscriber->places);
    }
    for (size_t index = 0; index < packer->texts.count; ++index)
        Py_DECREF(((PyObject **)packer->texts.items)[index]);
    free_array(&packer->subscribers);
    free_array(&packer->texts);
    free_array(&packer->lines);
    Py_CLEAR(packer->number_of);
}

/* Keeps a text, and sets where it begins and ends. Returns false with an exception set. */
static int keep_text(Packer *packer, PyObject *data, const char **at, const char **end)
{
    char *start;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &start, &size) < 0 || !has_room(&packer->texts, sizeof(PyObject *)))
        return 0;
    Py_INCREF(data);
    ((PyObject **)packer->texts.items)[packer->texts.count++] = data;
    *at = start;
    *end = start + size;
    return 1;
}

/* Returns the place of an address among the subscribers, where it is added if need be; -1 with an exception set. */
static Py_ssize_t subscriber_of(Packer *packer, PyObject *address)
{
    if (packer->number_of == NULL && (packer->number_of = PyDict_New()) == NULL)
        return -1;
    PyObject *known = PyDict_GetItemWithError(packer->number_of, address);
    if (known != NULL)
        return PyLong_AsSsize_t(known);
    if (PyErr_Occurred() || !has_room(&packer->subscribers, sizeof(Subscriber)))
        return -1;
    PyObject *number = PyLong_FromSize_t(packer->subscribers.count);
    int is_done = number != NULL && PyDict_SetItem(packer->number_of, address, number) == 0;
    Py_XDECREF(number);
    if (!is_done)
        return -1;
    Py_INCREF(address);
    SUBSCRIBER(packer, packer->subscribers.count) = (Subscriber){address, {NULL, 0, 0}};
    return (Py_ssize_t)packer->subscribers.count++;
}

/* Gives each of these addresses a line. Returns false with an exception set. */
static int give(Packer *packer, const Line *line, PyObject *addresses)
{
    if (!has_room(&packer->lines, sizeof(Text)))
        return 0;
    uint32_t place = (uint32_t)packer->lines.count;
    LINE(packer, packer->lines.count++) = (Text){line->start, line->size};
    for (Py_ssize_t index = 0; index < PyTuple_Size(addresses); ++index) {
        Py_ssize_t number = subscriber_of(packer, PyTuple_GetItem(addresses, index));
        if (number < 0)
            return 0;
        Array *places = &SUBSCRIBER(packer, number).places;
        if (!has_room(places, sizeof(uint32_t)))
            return 0;
        ((uint32_t *)places->items)[places->count++] = place;
    }
    return 1;
}

/* Puts a line into a list, as bytes. Returns false with an exception set. */
static int leave(PyObject *left, const Line *line)
{
    PyObject *text = PyBytes_FromStringAndSize(line->start, line->size);
    int is_done = text != NULL && PyList_Append(left, text) == 0;
    Py_XDECREF(text);
    return is_done;
}

static PyObject *packer_add(Packer *packer, PyObject *arguments)
{
    PyObject *data, *routes;
    const char *at, *end;
    if (!PyArg_ParseTuple(arguments, "SO:add", &data, &routes) || !keep_text(packer, data, &at, &end))
        return NULL;
    PyObject *left = PyList_New(0);
    unsigned long long copies = 0, size_bytes = 0;
    Finder finder = {.routes = routes};
    Line line = {0};
    int is_done = left != NULL;
    while (is_done && next_line(&at, end, &line)) {
        if (!find_route(&finder, &line))
            is_done = 0;
        else if (!finder.is_tuple || finder.count == 0)
            is_done = leave(left, &line);
        else {
            is_done = give(packer, &line, finder.route);
            copies += (unsigned long long)finder.count;
            size_bytes += (unsigned long long)line.size * (unsigned long long)finder.count;
        }
    }
    Py_XDECREF(finder.route);
    if (is_done)
        return Py_BuildValue("KKN", copies, size_bytes, left);
    Py_XDECREF(left);
    return NULL;
}

static PyObject *packer_add_for(Packer *packer, PyObject *arguments)
{
    PyObject *data, *addresses;
    const char *at, *end;
    if (!PyArg_ParseTuple(arguments, "SO:add_for", &data, &addresses) || !keep_text(packer, data, &at, &end))
        return NULL;
    PyObject *all = PySequence_Tuple(addresses);
    Line line = {0};
    int is_done = all != NULL;
    while (is_done && next_line(&at, end, &line))
        is_done = give(packer, &line, all);
    Py_XDECREF(all);
    if (!is_done)
        return NULL;
    Py_RETURN_NONE;
}

/* Packs lines as wire.py:pack_lines does. With `out` NULL it only measures: sets `segment_bytes`, and returns the
   size of all. Then it writes into `out`. */
static size_t fill(const Packer *packer, PyObject *places, PyObject *mark, char *out, size_t *segment_bytes)
{
    const char *mark_text = PyBytes_AsString(mark);
    size_t mark_bytes = (size_t)PyBytes_Size(mark), datagram_bytes = mark_bytes, longest = 0, filled_count = 0;
    const uint32_t *place = (const uint32_t *)(void *)PyBytes_AsString(places);
    const uint32_t *last = place + (size_t)PyBytes_Size(places) / sizeof(uint32_t);
    if (out != NULL)
        memcpy(out, mark_text, mark_bytes);
    for (; place < last; ++place) {
        const Text *line = &LINE(packer, *place);
        size_t line_bytes = (size_t)line->size + 1;
        if (datagram_bytes > mark_bytes && datagram_bytes + line_bytes > DATAGRAM_BYTES_MAX) {
            longest = datagram_bytes > longest ? datagram_bytes : longest;
            ++filled_count;
            if (out != NULL) {
                memset(out + datagram_bytes, '\n', *segment_bytes - datagram_bytes);
                out += *segment_bytes;
                memcpy(out, mark_text, mark_bytes);
            }
            datagram_bytes = mark_bytes;
        }
        if (out != NULL) {
            memcpy(out + datagram_bytes, line->start, line_bytes - 1);
            out[datagram_bytes + line_bytes - 1] = '\n';
        }
        datagram_bytes += line_bytes;
    }
    if (out == NULL)
        *segment_bytes = datagram_bytes > longest ? datagram_bytes : longest;
    return filled_count * *segment_bytes + datagram_bytes;
}

/* Returns the datagrams of these lines, for these addresses. */
static PyObject *packed_of(const Packer *packer, PyObject *places, PyObject *addresses, PyObject *mark)
{
    size_t segment_bytes, size = fill(packer, places, mark, NULL, &segment_bytes);
    PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (data == NULL)
        return NULL;
    fill(packer, places, mark, PyBytes_AsString(data), &segment_bytes);
    Py_ssize_t line_count = PyBytes_Size(places) / (Py_ssize_t)sizeof(uint32_t);
    PyTypeObject *transmit = *(PyTypeObject **)PyType_GetModuleState(Py_TYPE((PyObject *)packer));
    PyObject *fields = Py_BuildValue("((NnOn))", data, (Py_ssize_t)segment_bytes, addresses, line_count);
    PyObject *packed = fields ? ((newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new))(transmit, fields, NULL) : NULL;
    Py_XDECREF(fields);
    return packed;
}

/* Adds a subscriber to the list of those who get the same lines. Returns false with an exception set. */
static int group(PyObject *groups, const Subscriber *subscriber)
{
    const Array *places = &subscriber->places;
    PyObject *key = PyBytes_FromStringAndSize(places->items, (Py_ssize_t)(places->count * sizeof(uint32_t)));
    if (key == NULL)
        return 0;
    PyObject *addresses = PyDict_GetItemWithError(groups, key);
    Py_XINCREF(addresses);
    int is_done = addresses != NULL;
    if (!is_done && !PyErr_Occurred()) {
        addresses = PyList_New(0);
        is_done = addresses != NULL && PyDict_SetItem(groups, key, addresses) == 0;
    }
    is_done = is_done && PyList_Append(addresses, subscriber->address) == 0;
    Py_XDECREF(addresses);
    Py_DECREF(key);
    return is_done;
}

static PyObject *packer_pack(Packer *packer, PyObject *mark)
{
    if (!PyBytes_Check(mark)) {
        PyErr_SetString(PyExc_TypeError, "mark: give bytes");
        return NULL;
    }
    PyObject *groups = PyDict_New(), *all = PyList_New(0); /* the keys of groups are places of lines */
    int is_done = groups != NULL && all != NULL;
    for (size_t index = 0; is_done && index < packer->subscribers.count; ++index)
        is_done = group(groups, &SUBSCRIBER(packer, index));
    PyObject *places, *addresses;
    for (Py_ssize_t position = 0; is_done && PyDict_Next(groups, &position, &places, &addresses); ) {
        PyObject *packed = packed_of(packer, places, addresses, mark);
        is_done = packed != NULL && PyList_Append(all, packed) == 0;
        Py_XDECREF(packed);
    }
    Py_XDECREF(groups);
    if (is_done) {
        forget_all(packer);
        return all;
    }
    Py_XDECREF(all);
    return NULL;
}

static Py_ssize_t packer_length(Packer *packer)
{
    return (Py_ssize_t)packer->subscribers.count;
}

static void packer_dealloc(Packer *packer)
{
    PyTypeObject *type = Py_TYPE((PyObject *)packer);
    forget_all(packer);
    PyObject_Free(packer);
    Py_DECREF(type);
}

static PyMethodDef packer_methods[] = {
    {"add", (PyCFunction)packer_add, METH_VARARGS, "Takes publishes for those who have leased their topics."},
    {"add_for", (PyCFunction)packer_add_for, METH_VARARGS, "Takes publishes for all of these subscribers."},
    {"pack", (PyCFunction)packer_pack, METH_O, "Returns what each subscriber gets, and forgets it."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot packer_slots[] = {
    {Py_tp_doc, "The lines that each subscriber gets, as router.py has them."},
    {Py_tp_dealloc, packer_dealloc},
    {Py_tp_methods, packer_methods},
    {Py_sq_length, packer_length},
    {0, NULL},
};

static PyType_Spec packer_spec = {
    .name = "kcast.pubsub._router.Packer",
    .basicsize = sizeof(Packer),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = packer_slots,
};

/* --- The module ------------------------------------------------------------------------------------------ */

/* Its state is the class Transmit, which lives as long as it. */
static int fill_module(PyObject *module)
{
    PyObject *endpoint = PyImport_ImportModule("kcast.pubsub.endpoint");
    PyObject *transmit = endpoint ? PyObject_GetAttrString(endpoint, "Transmit") : NULL;
    Py_XDECREF(endpoint);
    if (transmit == NULL || !PyType_Check(transmit) || !PyType_IsSubtype((PyTypeObject *)transmit, &PyTuple_Type))
        return -1;
    *(PyObject **)PyModule_GetState(module) = transmit;
    PyObject *packer = PyType_FromModuleAndSpec(module, &packer_spec, NULL);
    return packer ? PyModule_AddType(module, (PyTypeObject *)packer) : -1; /* which lives as long as the module */
}

static PyMethodDef functions[] = {
    {"survey", survey, METH_VARARGS, "Surveys datagrams in which all lines are publishes, as router.py does."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, fill_module}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kcast.pubsub._router",
    .m_doc = "The twin of kcast.pubsub.router in native code.",
    .m_size = sizeof(PyObject *),
    .m_methods = functions,
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__router(void)
{
    return PyModuleDef_Init(&definition);
}
