#include "dump/objspace_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dump/objspace_line.h"

/* Bytes to read at a time, which stay in the processor's cache until they are parsed; more for a longer line. */
#define PIECE ((size_t)128 << 10)
/* Longer than the line of any object, however many its references. */
#define LONGEST_LINE ((size_t)1 << 30)
/* Between two calls, the caller looks whether it is to stop. */
#define PIECES_OF_A_CALL 512
/* No line of an object or of roots has fewer bytes: {"type":"ROOT"} and a newline. */
#define LINE_MIN 16
/* How many superclasses to follow: a dump may have cycles. */
#define ANCESTORS 64

/* A flag in a type: the object's last reference is to its class. Ruby's type numbers have five bits. */
#define HAS_CLASS 0x80

struct class_line {
    uint64_t superclass;
    uint32_t node, name, label;
    bool singleton;
};

struct named_reference {
    uint64_t reference; /* its place among all */
    memscope_edge_name name;
};

struct root_line {
    uint64_t first;
    uint32_t count, category;
};

enum memscope_status memscope_objspace_reader_open(struct memscope_objspace_reader *reader, int file) {
    memset(reader, 0, sizeof *reader);
    reader->file = file;
    return reader->status = memscope_names_open(&reader->names);
}

/* ---- one line -------------------------------------------------------------------------------------------------- */

static uint32_t name_of(struct memscope_objspace_reader *reader, struct memscope_objspace_text text) {
    char plain[512];

    if (text.length == 0)
        return 0;
    return memscope_names_add(&reader->names, plain, memscope_objspace_unescape(text, plain, sizeof plain));
}

static void add_class(struct memscope_objspace_reader *reader, const struct memscope_objspace_line *line) {
    struct class_line *list = reader->classes.list;

    list[reader->class_count++] = (struct class_line){.superclass = line->superclass,
                                                      .node = reader->object_count,
                                                      .name = name_of(reader, line->name),
                                                      .singleton = line->singleton};
}

/* The same name as in ruby/class_names.h: "imemo_env". */
static uint32_t imemo_label(struct memscope_objspace_reader *reader, struct memscope_objspace_text type) {
    char label[64] = "imemo_";
    size_t length = strlen(label);

    length += memscope_objspace_unescape(type, label + length, sizeof label - length);
    return memscope_names_add(&reader->names, label, length);
}

static uint32_t saturated(uint64_t number) {
    return number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
}

static enum memscope_edge_kind kind_of_name(uint8_t type, struct memscope_objspace_text name) {
    if (name.length > 0 && *name.start == '@')
        return name.length > 1 && name.start[1] == '@' ? MEMSCOPE_EDGE_CVAR : MEMSCOPE_EDGE_IVAR;
    return type == MEMSCOPE_TYPE_CLASS || type == MEMSCOPE_TYPE_MODULE || type == MEMSCOPE_TYPE_ICLASS
               ? MEMSCOPE_EDGE_CONSTANT
               : MEMSCOPE_EDGE_LOCAL;
}

/* Runs before its references count. Names that are not in the references' order are left out. */
static void add_edge_names(struct memscope_objspace_reader *reader, const struct memscope_objspace_line *line) {
    struct named_reference *list = reader->named_references.list;
    struct memscope_objspace_text rest = line->edge_names, name;
    uint64_t index, next = 0;

    while (memscope_objspace_edge_name_take(&rest, &index, &name)) {
        uint32_t number = name_of(reader, name);

        if (index < next || index >= line->reference_count || number == 0)
            continue;
        next = index + 1;
        list[reader->named_count++] =
            (struct named_reference){.reference = reader->reference_count + index,
                                     .name = MEMSCOPE_EDGE_NAME(kind_of_name(line->type, name), number)};
    }
}

/* "app/order.rb:12"; the empty name if the line does not state it. */
static uint32_t name_of_site(struct memscope_objspace_reader *reader, const struct memscope_objspace_line *line) {
    char text[1024];
    size_t length;

    if (line->file.length == 0)
        return 0;
    length = memscope_objspace_unescape(line->file, text, sizeof text - 24);
    length += (size_t)snprintf(text + length, 24, ":%" PRIu64, line->line_number);
    return memscope_names_add(&reader->names, text, length);
}

/* Its references are already at the end of the others. */
static void add_object(struct memscope_objspace_reader *reader, const struct memscope_objspace_line *line) {
    uint32_t node = reader->object_count;
    uint8_t type = line->type;

    ((uint64_t *)reader->addresses.list)[node] = line->address;
    ((uint32_t *)reader->bytes_of.list)[node] = saturated(line->bytes > 0 ? line->bytes : line->slot_bytes);
    ((uint32_t *)reader->slot_bytes.list)[node] = saturated(line->slot_bytes);
    ((uint64_t *)reader->first_references.list)[node] = reader->reference_count;
    reader->tells_slot_bytes |= line->slot_bytes > 0;
    if (reader->is_compared) {
        ((uint32_t *)reader->sites.list)[node] = name_of_site(reader, line);
        ((uint64_t *)reader->generations.list)[node] = line->generation;
    }
    add_edge_names(reader, line);
    reader->reference_count += line->reference_count;
    if (type == MEMSCOPE_TYPE_CLASS || type == MEMSCOPE_TYPE_MODULE)
        add_class(reader, line);
    if (type == MEMSCOPE_TYPE_IMEMO)
        ((uint32_t *)reader->labels.list)[node] = imemo_label(reader, line->imemo_type);
    if (line->class_address != 0) {
        ((uint64_t *)reader->references.list)[reader->reference_count++] = line->class_address;
        type |= HAS_CLASS;
    }
    ((uint8_t *)reader->types.list)[node] = type;
    reader->object_count++;
}

/* The number of the category; if there are too many, that of the last one. */
static uint32_t category_of(struct memscope_objspace_reader *reader, struct memscope_objspace_text text) {
    char name[sizeof *reader->category_text] = "";
    uint32_t category = 0;

    if (memscope_objspace_unescape(text, name, sizeof name - 1) == 0)
        memcpy(name, "unknown", sizeof "unknown");
    for (; category < MEMSCOPE_ROOT_CATEGORIES - 1; category++) {
        if (*reader->category_text[category] == '\0')
            memcpy(reader->category_text[category], name, sizeof name);
        if (memcmp(reader->category_text[category], name, sizeof name) == 0)
            return category;
    }
    memcpy(reader->category_text[category], "others", sizeof "others");
    return category;
}

static void add_roots(struct memscope_objspace_reader *reader, const struct memscope_objspace_line *line,
                      const uint64_t *references) {
    struct root_line *list = reader->root_lines.list;

    if (!memscope_growing_array_reserve(&reader->root_references,
                                        (reader->root_reference_count + line->reference_count) * sizeof *references)) {
        reader->status = MEMSCOPE_NO_MEMORY;
        return;
    }
    if (line->reference_count > 0)
        memcpy((uint64_t *)reader->root_references.list + reader->root_reference_count, references,
               line->reference_count * sizeof *references);
    list[reader->root_line_count++] = (struct root_line){.first = reader->root_reference_count,
                                                         .count = line->reference_count,
                                                         .category = category_of(reader, line->category)};
    reader->root_reference_count += line->reference_count;
}

/* Returns the beginning of the next line. */
static const char *add_line(struct memscope_objspace_reader *reader, const char *text, const char *end) {
    uint64_t *references = (uint64_t *)reader->references.list + reader->reference_count;
    struct memscope_objspace_line line;
    const char *rest = memscope_objspace_line_read(text, &line, references);

    if (rest == NULL)
        reader->unreadable_lines += *text != '\n';
    else if (line.root)
        add_roots(reader, &line, references);
    else if (line.type != 0 && line.address != 0)
        add_object(reader, &line);
    rest = rest == NULL ? text : rest;
    return *rest == '\n' ? rest + 1 : (const char *)memchr(rest, '\n', (size_t)(end - rest)) + 1;
}

/* ---- the file -------------------------------------------------------------------------------------------------- */

static bool reserve(struct memscope_growing_array *array, uint64_t count, size_t size) {
    return memscope_growing_array_reserve(array, (size_t)(count * size));
}

/* Makes room for whatever this many bytes of lines can hold, so that reading a line needs no checks. */
static bool make_room(struct memscope_objspace_reader *reader, size_t bytes) {
    uint64_t lines = bytes / LINE_MIN + 1, objects = reader->object_count + lines;
    uint64_t references = reader->reference_count + bytes / MEMSCOPE_OBJSPACE_REFERENCE + lines;

    return reserve(&reader->addresses, objects, sizeof(uint64_t)) && reserve(&reader->types, objects, 1) &&
           reserve(&reader->bytes_of, objects, sizeof(uint32_t)) &&
           reserve(&reader->slot_bytes, objects, sizeof(uint32_t)) &&
           reserve(&reader->labels, objects, sizeof(uint32_t)) &&
           (!reader->is_compared || (reserve(&reader->sites, objects, sizeof(uint32_t)) &&
                                     reserve(&reader->generations, objects, sizeof(uint64_t)))) &&
           reserve(&reader->first_references, objects + 1, sizeof(uint64_t)) &&
           reserve(&reader->references, references, sizeof(uint64_t)) &&
           reserve(&reader->named_references, reader->named_count + bytes / MEMSCOPE_OBJSPACE_EDGE_NAME + 1,
                   sizeof(struct named_reference)) &&
           reserve(&reader->classes, reader->class_count + lines, sizeof(struct class_line)) &&
           reserve(&reader->root_lines, reader->root_line_count + lines, sizeof(struct root_line));
}

static void add_lines(struct memscope_objspace_reader *reader, const char *text, const char *end) {
    if (!make_room(reader, (size_t)(end - text))) {
        reader->status = MEMSCOPE_NO_MEMORY;
        return;
    }
    while (text < end && reader->status == MEMSCOPE_OK)
        text = add_line(reader, text, end);
    /* Nodes, and with them names and references, are numbers of 32 bits. */
    if (reader->object_count > UINT32_MAX - MEMSCOPE_ROOT_CATEGORIES - 2 ||
        reader->reference_count + reader->root_reference_count > UINT32_MAX - MEMSCOPE_ROOT_CATEGORIES)
        reader->status = MEMSCOPE_TRUNCATED;
}

/* Parses the whole lines of what was read, and keeps the rest for the next piece. */
static void take_lines(struct memscope_objspace_reader *reader) {
    char *text = reader->text.list;
    const char *last = memrchr(text, '\n', reader->text_length);
    size_t whole = last == NULL ? 0 : (size_t)(last - text) + 1;

    if (whole == 0)
        return;
    add_lines(reader, text, text + whole);
    reader->text_length -= whole;
    memmove(text, text + whole, reader->text_length);
}

/* The rest, without a newline at its end, is a whole line; or, if it cannot be parsed, the file was cut. */
static void take_last_line(struct memscope_objspace_reader *reader) {
    char *text = reader->text.list;
    uint64_t unreadable = reader->unreadable_lines;

    reader->ended = true;
    if (reader->text_length == 0)
        return;
    text[reader->text_length] = '\n';
    add_lines(reader, text, text + reader->text_length + 1);
    reader->truncated = reader->unreadable_lines > unreadable;
    reader->unreadable_lines = unreadable;
}

/* False when nothing can be read at the moment, or any more. */
static bool read_piece(struct memscope_objspace_reader *reader) {
    ssize_t count;

    if (reader->text_length > LONGEST_LINE) {
        reader->status = MEMSCOPE_MALFORMED;
        return false;
    }
    if (!memscope_growing_array_reserve(&reader->text, reader->text_length + PIECE + MEMSCOPE_OBJSPACE_PADDING)) {
        reader->status = MEMSCOPE_NO_MEMORY;
        return false;
    }
    count = read(reader->file, (char *)reader->text.list + reader->text_length,
                 reader->text.bytes - reader->text_length - MEMSCOPE_OBJSPACE_PADDING);
    if (count < 0) {
        if (errno != EINTR)
            reader->status = memscope_status_of_errno(errno);
        return false;
    }
    if (count == 0) {
        take_last_line(reader);
        return false;
    }
    reader->bytes += (uint64_t)count;
    reader->text_length += (size_t)count;
    take_lines(reader);
    return true;
}

bool memscope_objspace_reader_continue(struct memscope_objspace_reader *reader) {
    for (int piece = 0; piece < PIECES_OF_A_CALL && reader->status == MEMSCOPE_OK; piece++)
        if (!read_piece(reader))
            break;
    return reader->status == MEMSCOPE_OK && !reader->ended;
}

/* ---- classes --------------------------------------------------------------------------------------------------- */

/* The line of the class at this address; NULL if there is none. */
static const struct class_line *class_at(const struct memscope_objspace_reader *reader, uint64_t address) {
    const struct class_line *list = reader->classes.list;
    uint32_t node = memscope_address_find(&reader->index, address), low = 0, high = reader->class_count;

    if (address == 0 || node == MEMSCOPE_NO_NODE)
        return NULL;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (list[middle].node < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low < reader->class_count && list[low].node == node ? &list[low] : NULL;
}

static uint32_t add_name(struct memscope_objspace_reader *reader, const char *before, const char *text, size_t length,
                         const char *after) {
    size_t first = strlen(before), last = strlen(after);
    char name[1024];

    length = length > sizeof name - 1 - first - last ? sizeof name - 1 - first - last : length;
    snprintf(name, sizeof name, "%s%.*s%s", before, (int)length, text, after);
    return memscope_names_add(&reader->names, name, strlen(name));
}

/*
 * As in a dump of this process: a singleton class has the name of the first class above it that is not a singleton
 * class (before Ruby 3.0, dumps do not state it), an anonymous class that of the first with a name.
 */
static uint32_t label_of_class(struct memscope_objspace_reader *reader, const struct class_line *line) {
    bool anonymous = false;
    const char *name;
    size_t length;

    for (int above = 0; above < ANCESTORS && line != NULL && line->name == 0; above++) {
        anonymous |= !line->singleton;
        line = class_at(reader, line->superclass);
    }
    if (line == NULL || line->name == 0)
        return memscope_names_add(&reader->names, "anonymous", 9);
    name = memscope_names_get(&reader->names, line->name, &length);
    return anonymous ? add_name(reader, "", name, length, " (anonymous subclass)") : line->name;
}

static uint32_t label_of_instances(struct memscope_objspace_reader *reader, uint64_t address) {
    const struct class_line *line = class_at(reader, address);

    return line == NULL ? memscope_names_add(&reader->names, "(unknown class)", 15) : label_of_class(reader, line);
}

static uint32_t label_without_class(struct memscope_objspace_reader *reader, uint8_t type) {
    const char *name = memscope_objspace_type_name(type);

    return add_name(reader, "T_", name, strlen(name), "");
}

/* The address of a node's class; 0 if it has none. What Ruby 3.1 states as an imemo's or iclass's class is not one. */
static uint64_t class_address(const struct memscope_objspace_reader *reader, uint32_t node, uint64_t references_end) {
    uint8_t type = ((const uint8_t *)reader->types.list)[node];

    if (!(type & HAS_CLASS) || (type & ~HAS_CLASS) == MEMSCOPE_TYPE_IMEMO ||
        (type & ~HAS_CLASS) == MEMSCOPE_TYPE_ICLASS)
        return 0;
    return ((const uint64_t *)reader->references.list)[references_end - 1];
}

/* Of the instances of classes that came last. */
#define KNOWN_LABELS 256
struct known_label {
    uint64_t class;
    uint32_t label;
};

static void label_objects(struct memscope_objspace_reader *reader) {
    const uint64_t *first = reader->first_references.list;
    uint32_t *labels = reader->labels.list;
    struct known_label known[KNOWN_LABELS] = {{0, 0}}, *found;

    for (uint32_t node = 0; node < reader->object_count; node++) {
        uint64_t address = class_address(reader, node, first[node + 1]);
        uint8_t type = ((const uint8_t *)reader->types.list)[node] & (uint8_t)~HAS_CLASS;

        if (address == 0) {
            if (type != MEMSCOPE_TYPE_IMEMO)
                labels[node] = label_without_class(reader, type);
            continue;
        }
        found = &known[(address >> reader->index.shift) % KNOWN_LABELS];
        if (found->class != address)
            *found = (struct known_label){address, label_of_instances(reader, address)};
        labels[node] = found->label;
    }
}

/* Overwrites the lines of classes, which are larger. All labels are made before the first line is overwritten. */
static void keep_module_names(struct memscope_objspace_reader *reader, struct memscope_heap_dump *dump) {
    struct class_line *lines = reader->classes.list;
    struct memscope_module_name *modules = reader->classes.list;

    for (uint32_t index = 0; index < reader->class_count; index++)
        lines[index].label = label_of_class(reader, &lines[index]);
    for (uint32_t index = 0; index < reader->class_count; index++) {
        struct class_line line = lines[index];

        modules[index] = (struct memscope_module_name){.node = line.node,
                                                       .name = line.label,
                                                       .singleton = line.singleton,
                                                       .named = !line.singleton && line.name != 0};
    }
    dump->modules = modules;
    dump->module_count = reader->class_count;
}

/* ---- numbers that last ----------------------------------------------------------------------------------------- */

static uint64_t address_of_basic_object(const struct memscope_objspace_reader *reader) {
    const struct class_line *lines = reader->classes.list;
    const uint64_t *addresses = reader->addresses.list;

    for (uint32_t index = 0; index < reader->class_count; index++) {
        size_t length;
        const char *name = memscope_names_get(&reader->names, lines[index].name, &length);

        if (!lines[index].singleton && length == 11 && memcmp(name, "BasicObject", 11) == 0)
            return addresses[lines[index].node];
    }
    return 0;
}

static enum memscope_status number_objects(struct memscope_objspace_reader *reader, struct memscope_heap_dump *dump) {
    const uint64_t *addresses = reader->addresses.list;
    uint64_t base = address_of_basic_object(reader);
    uint32_t *ids;

    if (base == 0)
        return MEMSCOPE_OK;
    if (!reserve(&reader->ids, reader->object_count, sizeof *ids))
        return MEMSCOPE_NO_MEMORY;
    ids = reader->ids.list;
    for (uint32_t node = 0; node < reader->object_count; node++) {
        ids[node] = memscope_heap_dump_id((int64_t)(addresses[node] - base));
        if (ids[node] == 0)
            return MEMSCOPE_OK;
    }
    dump->ids = ids;
    return MEMSCOPE_OK;
}

/* ---- edges ----------------------------------------------------------------------------------------------------- */

/* References that are looked up ahead of their turn. */
#define AHEAD 12

struct edges {
    struct memscope_objspace_reader *reader;
    uint32_t *list;
    memscope_edge_name *names;
    uint32_t *seen; /* by object: the last node that was found to refer to it, plus 1 */
    uint32_t count;
    uint64_t named; /* the next of the named references */
};

static inline void add_edge(struct edges *edges, uint32_t from, uint64_t address, memscope_edge_name name) {
    uint32_t node = memscope_address_find(&edges->reader->index, address);

    if (node == MEMSCOPE_NO_NODE) {
        edges->reader->missing_references++;
        return;
    }
    if (edges->seen[node] == from + 1)
        return;
    edges->seen[node] = from + 1;
    edges->names[edges->count] = name;
    edges->list[edges->count++] = node;
}

static inline memscope_edge_name name_of_reference(struct edges *edges, uint64_t reference) {
    const struct named_reference *list = edges->reader->named_references.list;

    if (edges->named == edges->reader->named_count || list[edges->named].reference != reference)
        return MEMSCOPE_EDGE_INTERNAL;
    return list[edges->named++].name;
}

/*
 * Edges overwrite the references. They are half the size, so that each reference is read before it is overwritten. If
 * an object refers to its class otherwise too, the single edge counts as the one to its class.
 */
static void add_object_edges(struct edges *edges, uint32_t node, uint64_t from, uint64_t to, uint64_t class_of_node) {
    const uint64_t *references = edges->reader->references.list;
    uint64_t all = edges->reader->reference_count;
    bool is_imemo = ((const uint8_t *)edges->reader->types.list)[node] == (HAS_CLASS | MEMSCOPE_TYPE_IMEMO);

    /* What Ruby 3.1 says is the class of an imemo need not be an object. */
    if (is_imemo && memscope_address_find(&edges->reader->index, references[to - 1]) == MEMSCOPE_NO_NODE)
        to--;
    for (uint64_t index = from; index < to; index++) {
        uint64_t address = references[index];

        if (index + AHEAD < all)
            __builtin_prefetch(memscope_address_place(&edges->reader->index, references[index + AHEAD]));
        memscope_edge_name name = name_of_reference(edges, index);

        if (address != class_of_node)
            add_edge(edges, node, address, name);
    }
    if (class_of_node != 0)
        add_edge(edges, node, class_of_node, MEMSCOPE_EDGE_CLASS);
}

static void add_category_edges(struct edges *edges, uint32_t category, uint32_t node) {
    const struct root_line *lines = edges->reader->root_lines.list;
    const uint64_t *references = edges->reader->root_references.list;

    for (uint32_t line = 0; line < edges->reader->root_line_count; line++)
        for (uint32_t index = 0; lines[line].category == category && index < lines[line].count; index++)
            add_edge(edges, node, references[lines[line].first + index], MEMSCOPE_EDGE_INTERNAL);
}

static uint32_t count_categories(const struct memscope_objspace_reader *reader) {
    uint32_t count = 0;

    while (count < MEMSCOPE_ROOT_CATEGORIES && *reader->category_text[count] != '\0')
        count++;
    return count;
}

static bool make_room_for_edges(struct memscope_objspace_reader *reader, uint32_t nodes) {
    uint64_t edges = reader->reference_count + reader->root_reference_count + MEMSCOPE_ROOT_CATEGORIES;

    return reserve(&reader->references, edges, sizeof(uint32_t)) &&
           reserve(&reader->edge_names, edges, sizeof(memscope_edge_name)) &&
           reserve(&reader->first_references, (uint64_t)nodes + 1, sizeof(uint32_t)) &&
           reserve(&reader->seen, reader->object_count, sizeof(uint32_t));
}

/* first_edge overwrites first_references in the same way. */
static void add_all_edges(struct edges *edges, struct memscope_heap_graph *graph) {
    struct memscope_objspace_reader *reader = edges->reader;
    const uint64_t *first = reader->first_references.list;
    uint64_t from = 0;
    uint32_t *first_edge = reader->first_references.list;

    for (uint32_t node = 0; node < graph->slot_count; node++) {
        uint64_t to = first[node + 1], class_of_node = class_address(reader, node, to);

        first_edge[node] = edges->count;
        add_object_edges(edges, node, from, to, class_of_node);
        from = to;
    }
    for (uint32_t category = 0; category < graph->category_count; category++) {
        first_edge[memscope_graph_category_node(graph, category)] = edges->count;
        add_category_edges(edges, category, memscope_graph_category_node(graph, category));
    }
    first_edge[memscope_graph_root(graph)] = edges->count;
    for (uint32_t category = 0; category < graph->category_count; category++) {
        edges->names[edges->count] = MEMSCOPE_EDGE_INTERNAL;
        edges->list[edges->count++] = memscope_graph_category_node(graph, category);
    }
    first_edge[graph->node_count] = edges->count;
}

/* ---- the graph ------------------------------------------------------------------------------------------------- */

static void strip_types(struct memscope_objspace_reader *reader) {
    uint8_t *types = reader->types.list;

    for (uint32_t node = 0; node < reader->object_count; node++)
        types[node] &= (uint8_t)~HAS_CLASS;
}

static void set_graph(struct memscope_objspace_reader *reader, const struct edges *edges,
                      struct memscope_heap_graph *graph) {
    strip_types(reader);
    graph->object_count = graph->slot_count;
    graph->edge_count = edges->count;
    graph->type = reader->types.list;
    graph->node_class = reader->labels.list;
    graph->slot_bytes = reader->tells_slot_bytes ? reader->slot_bytes.list : NULL;
    graph->bytes = reader->bytes_of.list;
    graph->first_edge = reader->first_references.list;
    graph->edges = edges->list;
    graph->edge_names = edges->names;
    for (uint32_t category = 0; category < graph->category_count; category++)
        graph->categories[category] = reader->category_text[category];
    graph->names = reader->names;
    reader->graph = graph;
}

static enum memscope_status resolve(struct memscope_objspace_reader *reader, struct memscope_heap_graph *graph,
                                    struct memscope_heap_dump *dump) {
    struct edges edges = {.reader = reader};
    enum memscope_status status =
        memscope_address_index_open(&reader->index, reader->addresses.list, reader->object_count);

    ((uint64_t *)reader->first_references.list)[reader->object_count] = reader->reference_count;
    if (status != MEMSCOPE_OK)
        return status;
    label_objects(reader);
    status = number_objects(reader, dump);
    keep_module_names(reader, dump);
    if (status != MEMSCOPE_OK)
        return status;
    if (!make_room_for_edges(reader, graph->node_count))
        return MEMSCOPE_NO_MEMORY;
    edges.list = reader->references.list;
    edges.names = reader->edge_names.list;
    edges.seen = reader->seen.list;
    add_all_edges(&edges, graph);
    set_graph(reader, &edges, graph);
    return MEMSCOPE_OK;
}

enum memscope_status memscope_objspace_reader_graph(struct memscope_objspace_reader *reader,
                                                    struct memscope_heap_graph *graph,
                                                    struct memscope_heap_dump *dump) {
    memset(graph, 0, sizeof *graph);
    memset(dump, 0, sizeof *dump);
    if (reader->status != MEMSCOPE_OK)
        return reader->status;
    if (reader->object_count == 0)
        return MEMSCOPE_MALFORMED;
    graph->slot_count = reader->object_count;
    graph->category_count = count_categories(reader);
    graph->node_count = graph->slot_count + graph->category_count + 1;
    dump->graph = graph;
    reader->status = resolve(reader, graph, dump);
    memscope_growing_array_close(&reader->seen);
    if (!reader->is_compared) {
        memscope_address_index_close(&reader->index);
        memscope_growing_array_close(&reader->addresses);
    }
    return reader->status;
}

void memscope_objspace_reader_drop_edges(struct memscope_objspace_reader *reader) {
    memscope_growing_array_close(&reader->references);
    memscope_growing_array_close(&reader->edge_names);
    memscope_growing_array_close(&reader->first_references);
    if (reader->graph != NULL)
        reader->graph->edges = reader->graph->edge_names = reader->graph->first_edge = NULL;
}

void memscope_objspace_reader_close(struct memscope_objspace_reader *reader) {
    struct memscope_growing_array *arrays[] = {
        &reader->text,
        &reader->addresses,
        &reader->types,
        &reader->bytes_of,
        &reader->slot_bytes,
        &reader->labels,
        &reader->references,
        &reader->first_references,
        &reader->classes,
        &reader->root_lines,
        &reader->edge_names,
        &reader->ids,
        &reader->seen,
        &reader->sites,
        &reader->generations,
        &reader->root_references,
        &reader->named_references,
    };

    for (size_t index = 0; index < sizeof arrays / sizeof(void *); index++)
        memscope_growing_array_close(arrays[index]);
    memscope_address_index_close(&reader->index);
    memscope_names_close(reader->graph == NULL ? &reader->names : &reader->graph->names);
    memset(reader, 0, sizeof *reader);
}
