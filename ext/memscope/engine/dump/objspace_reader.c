#include "dump/objspace_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mapped_array.h"
#include "dump/objspace_line.h"
#include "graph/graph_builder.h"

/* Bytes per read, which stay in the processor's cache until they are parsed. */
#define PIECE ((size_t)128 << 10)
/* Longer than the line of any object, however many references it has. */
#define MAX_LINE ((size_t)1 << 30)
/* Pieces that one call reads: 64 MiB. Between two calls, the caller checks for a request to stop. */
#define PIECES_OF_A_CALL 512
/* Longer than any broken name: that of a method, in which 11 bytes of other memory follow each byte. */
#define BROKEN_NAME_MAX ((ptrdiff_t)64 << 10)
/* Minimum bytes of a line of an object or of roots: {"type":"ROOT"} and a newline. */
#define LINE_MIN 16

enum memscope_status memscope_objspace_reader_open(struct memscope_objspace_reader *reader, int file) {
    memset(reader, 0, sizeof *reader);
    reader->file = file;
    return reader->status = memscope_names_open(&reader->graph.names);
}

/* ---- one line -------------------------------------------------------------------------------------------------- */

static uint32_t name_of(struct memscope_objspace_reader *reader, struct memscope_text text) {
    char plain[512];

    if (text.length == 0)
        return 0;
    return memscope_names_add(&reader->graph.names, plain, memscope_objspace_unescape(text, plain, sizeof plain));
}

static void add_class(struct memscope_objspace_reader *reader, const struct memscope_objspace_line *line) {
    reader->classes[reader->class_count++] = (struct memscope_class_line){.superclass = line->superclass,
                                                                          .node = reader->object_count,
                                                                          .name = name_of(reader, line->name),
                                                                          .singleton = line->singleton};
}

/* The same name as in ruby/class_names.h: "imemo_env". */
static uint32_t imemo_label(struct memscope_objspace_reader *reader, struct memscope_text type) {
    char label[64] = "imemo_";
    size_t length = strlen(label);

    length += memscope_objspace_unescape(type, label + length, sizeof label - length);
    return memscope_names_add(&reader->graph.names, label, length);
}

static uint32_t saturated(uint64_t number) {
    return number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
}

static enum memscope_edge_kind kind_of_name(uint8_t type, struct memscope_text name) {
    if (name.length > 0 && *name.start == '@')
        return name.length > 1 && name.start[1] == '@' ? MEMSCOPE_EDGE_CVAR : MEMSCOPE_EDGE_IVAR;
    return type == MEMSCOPE_TYPE_CLASS || type == MEMSCOPE_TYPE_MODULE || type == MEMSCOPE_TYPE_ICLASS
               ? MEMSCOPE_EDGE_CONSTANT
               : MEMSCOPE_EDGE_LOCAL;
}

/* Runs before reference_count includes the line's references. Skips names that are not in the references' order. */
static void add_edge_names(struct memscope_objspace_reader *reader, const struct memscope_objspace_line *line) {
    struct memscope_text rest = line->edge_names, name;
    uint64_t index, next = 0;

    while (memscope_objspace_edge_name_take(&rest, &index, &name)) {
        uint32_t number = name_of(reader, name);

        if (index < next || index >= line->reference_count || number == 0)
            continue;
        next = index + 1;
        reader->named_references[reader->named_count++] =
            (struct memscope_named_reference){.reference = reader->reference_count + index,
                                              .name = MEMSCOPE_EDGE_NAME(kind_of_name(line->type, name), number)};
    }
}

/* "app/order.rb:12" */
static uint32_t name_of_site(struct memscope_objspace_reader *reader, const struct memscope_objspace_line *line) {
    char text[1024];
    size_t length;

    length = memscope_objspace_unescape(line->file, text, sizeof text - 24);
    length += (size_t)snprintf(text + length, 24, ":%" PRIu64, line->line_number);
    return memscope_names_add(&reader->graph.names, text, length);
}

/* The line's references are in the array already, behind the earlier ones. */
static void add_object(struct memscope_objspace_reader *reader, const struct memscope_objspace_line *line) {
    struct memscope_heap_graph *graph = &reader->graph;
    uint32_t node = reader->object_count;

    reader->addresses[node] = line->address;
    reader->class_addresses[node] = line->class_address;
    reader->reference_counts[node] = line->reference_count;
    if (line->file.length > 0) {
        reader->sites[node] = name_of_site(reader, line);
        reader->tells_sites = true;
    }
    if (reader->is_compared)
        reader->generations[node] = line->generation;
    graph->type[node] = line->type;
    graph->bytes[node] = saturated(line->bytes > 0 ? line->bytes : line->slot_bytes);
    if (line->slot_bytes > 0) {
        graph->slot_bytes[node] = saturated(line->slot_bytes);
        reader->tells_slot_bytes = true;
    }
    add_edge_names(reader, line);
    reader->reference_count += line->reference_count;
    if (line->type == MEMSCOPE_TYPE_CLASS || line->type == MEMSCOPE_TYPE_MODULE)
        add_class(reader, line);
    if (line->type == MEMSCOPE_TYPE_IMEMO)
        graph->node_class[node] = imemo_label(reader, line->imemo_type);
    if (line->type == MEMSCOPE_TYPE_DATA)
        graph->node_class[node] = name_of(reader, line->data_type);
    reader->object_count++;
}

/* The number of the category, or of the last one if there are too many. */
static uint32_t category_of(struct memscope_objspace_reader *reader, struct memscope_text text) {
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
    uint32_t category = category_of(reader, line->category);

    reader->has_roots = true;
    if (!MEMSCOPE_ARRAY_RESERVE(reader->roots, reader->root_count + line->reference_count)) {
        reader->status = MEMSCOPE_NO_MEMORY;
        return;
    }
    for (uint32_t index = 0; index < line->reference_count; index++)
        reader->roots[reader->root_count++] = (struct memscope_root_reference){references[index], category};
}

/* Returns the beginning of the next line. */
static const char *add_line(struct memscope_objspace_reader *reader, const char *text, const char *end) {
    uint64_t *references = reader->references + reader->reference_count;
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

/* Makes room for the maximum content of this many bytes of lines, so that reading a line needs no checks. */
static bool make_room(struct memscope_objspace_reader *reader, size_t bytes) {
    uint64_t lines = bytes / LINE_MIN + 1, objects = reader->object_count + lines;
    uint64_t references = reader->reference_count + bytes / MEMSCOPE_OBJSPACE_REFERENCE + 1;
    uint64_t names = reader->named_count + bytes / MEMSCOPE_OBJSPACE_EDGE_NAME + 1;

    return memscope_graph_reserve(&reader->graph, objects, MEMSCOPE_GRAPH_SLOT_BYTES) &&
           MEMSCOPE_ARRAY_RESERVE(reader->addresses, objects) &&
           MEMSCOPE_ARRAY_RESERVE(reader->class_addresses, objects) &&
           MEMSCOPE_ARRAY_RESERVE(reader->reference_counts, objects) &&
           MEMSCOPE_ARRAY_RESERVE(reader->sites, objects) &&
           (!reader->is_compared || MEMSCOPE_ARRAY_RESERVE(reader->generations, objects)) &&
           MEMSCOPE_ARRAY_RESERVE(reader->references, references) &&
           MEMSCOPE_ARRAY_RESERVE(reader->named_references, names) &&
           MEMSCOPE_ARRAY_RESERVE(reader->classes, reader->class_count + lines);
}

static void add_lines(struct memscope_objspace_reader *reader, const char *text, const char *end) {
    if (!make_room(reader, (size_t)(end - text))) {
        reader->status = MEMSCOPE_NO_MEMORY;
        return;
    }
    while (text < end && reader->status == MEMSCOPE_OK)
        text = add_line(reader, text, end);
    /* Nodes, and with them names, are numbers of 32 bits. */
    if (reader->object_count > UINT32_MAX - MEMSCOPE_ROOT_CATEGORIES - 2)
        reader->status = MEMSCOPE_TRUNCATED;
}

#define NAME_BEGINS "\"method\":\""
#define NAME_ENDS "\", \"generation\":"

/*
 * The name of the method around the byte at `broken`, or NULL. Names that begin before `first` do not count, since a
 * dump of zeros would otherwise be searched once for each of them.
 */
static char *name_around(char *first, char *broken) {
    size_t length = sizeof NAME_BEGINS - 1;
    char *farthest = broken - first > BROKEN_NAME_MAX ? broken - BROKEN_NAME_MAX : first;

    for (char *begin = broken - length; begin >= farthest && *begin != '\n'; begin--)
        if (memcmp(begin, NAME_BEGINS, length) == 0)
            return begin + length;
    return NULL;
}

/* The end of the name around `broken`, NULL if it is not near. None is before `*searched`, which is advanced. */
static const char *end_of_name(const char *broken, const char *end, const char **searched) {
    size_t length = sizeof NAME_ENDS - 1;
    const char *from = broken > *searched ? broken : *searched, *last = end;
    const char *found;

    if (end - broken > BROKEN_NAME_MAX)
        last = broken + BROKEN_NAME_MAX;
    if (from >= last)
        return NULL;
    found = memmem(from, (size_t)(last - from), NAME_ENDS, length);
    if (found == NULL && last - from >= (ptrdiff_t)length)
        *searched = last - length + 1;
    return found;
}

/*
 * Writes question marks over the broken names of methods, which JSON's parsers could not skip. In a dump, only they
 * have NUL bytes. Returns the length of the text before the first such name whose end is still to be read.
 */
static size_t repair_names(struct memscope_objspace_reader *reader, size_t count) {
    char *text = reader->text, *end = text + reader->text_length, *first = text;
    char *next = reader->has_broken_names ? text : end - count;
    const char *searched = text;

    while ((next = memchr(next, '\0', (size_t)(end - next))) != NULL) {
        char *name = name_around(first, next);
        const char *after = name == NULL ? NULL : end_of_name(next, end, &searched);

        if (name != NULL && after == NULL && end - name < BROKEN_NAME_MAX && !reader->ended) {
            reader->has_broken_names = true;
            return (size_t)(name - text);
        }
        if (after == NULL && next - text >= (ptrdiff_t)sizeof NAME_BEGINS)
            first = next - (sizeof NAME_BEGINS - 1) + 1;
        if (after != NULL)
            memset(name, '?', (size_t)(after - name));
        next = after == NULL ? next + 1 : name + (after - name);
    }
    return reader->text_length;
}

/* Parses whole lines, and keeps the rest for the next piece. Only the newest count bytes can have a newline. */
static void take_lines(struct memscope_objspace_reader *reader, size_t count) {
    size_t usable = repair_names(reader, count), from = reader->has_broken_names ? 0 : reader->text_length - count;
    char *text = reader->text;
    const char *last = usable > from ? memrchr(text + from, '\n', usable - from) : NULL;
    size_t whole = last == NULL ? 0 : (size_t)(last - text) + 1;

    reader->has_broken_names = usable < reader->text_length;
    if (whole == 0)
        return;
    add_lines(reader, text, text + whole);
    reader->text_length -= whole;
    memmove(text, text + whole, reader->text_length);
}

/* The rest, without a newline at its end, is a whole line. If it cannot be parsed, the file was cut. */
static void take_last_line(struct memscope_objspace_reader *reader) {
    char *text = reader->text;
    uint64_t unreadable = reader->unreadable_lines;

    reader->ended = true;
    if (reader->text_length == 0)
        return;
    repair_names(reader, reader->text_length);
    text[reader->text_length] = '\n';
    add_lines(reader, text, text + reader->text_length + 1);
    reader->truncated = reader->unreadable_lines > unreadable;
    reader->unreadable_lines = unreadable;
}

/* Returns false at the end, after a failure, and if a signal interrupts. */
static bool read_piece(struct memscope_objspace_reader *reader) {
    ssize_t count;

    if (reader->text_length > MAX_LINE) {
        reader->status = MEMSCOPE_MALFORMED;
        return false;
    }
    if (!MEMSCOPE_ARRAY_RESERVE(reader->text, reader->text_length + PIECE + MEMSCOPE_OBJSPACE_PADDING)) {
        reader->status = MEMSCOPE_NO_MEMORY;
        return false;
    }
    count = read(reader->file, reader->text + reader->text_length, PIECE);
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
    take_lines(reader, (size_t)count);
    return true;
}

bool memscope_objspace_reader_continue(struct memscope_objspace_reader *reader) {
    for (int piece = 0; piece < PIECES_OF_A_CALL && reader->status == MEMSCOPE_OK; piece++)
        if (!read_piece(reader))
            break;
    return reader->status == MEMSCOPE_OK && !reader->ended;
}

bool memscope_objspace_lacks_objects(const struct memscope_objspace_reader *reader) {
    uint64_t references =
        reader->reference_count + reader->object_count + reader->root_count; /* with those to classes */

    return reader->missing_references > references / 1000;
}

void memscope_objspace_reader_close(struct memscope_objspace_reader *reader) {
    memscope_arrays_unmap(reader->text, reader->addresses, reader->class_addresses, reader->reference_counts,
                          reader->sites, reader->references, reader->named_references, reader->classes,
                          reader->generations, reader->roots, reader->ids, reader->modules);
    memscope_address_index_close(&reader->index);
    memscope_graph_close(&reader->graph);
    memset(reader, 0, sizeof *reader);
}
