#include "malloc/glibc_info.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mapped_array.h"
#include "base/text_file.h"

/* As in glibc's malloc.h. NULL in other C libraries. */
extern __attribute__((weak)) int malloc_info(int options, FILE *stream);

#define LINE 256
#define STREAM_BUFFER 4096

/* The text comes in pieces of any length, but an element is always on a line of its own. */
struct parser {
    const struct memscope_glibc_arenas_memory *memory;
    struct memscope_glibc_arenas *arenas;
    struct memscope_glibc_arena *arena; /* owns the elements that follow */
    bool begun, ended;
    enum memscope_status status;
    char line[LINE];
    size_t filled;
};

static void begin(struct parser *parser, const struct memscope_glibc_arenas_memory *memory,
                  struct memscope_glibc_arenas *arenas) {
    memset(parser, 0, sizeof *parser);
    memset(arenas, 0, sizeof *arenas);
    arenas->list = memscope_scratch_take(memory->arenas, 0);
    arenas->sizes = memscope_scratch_take(memory->sizes, 0);
    parser->memory = memory;
    parser->arenas = arenas;
    arenas->merged.arena = memscope_arena_unknown;
    if (arenas->list == NULL || arenas->sizes == NULL)
        parser->status = MEMSCOPE_NO_MEMORY;
}

static bool is_element(const char *line, const char *name) {
    size_t length = strlen(name);

    return line[0] == '<' && strncmp(line + 1, name, length) == 0 && strchr(" >/", line[1 + length]) != NULL;
}

/* The text after name=" in an element, or NULL. */
static const char *attribute(const char *line, const char *name) {
    size_t length = strlen(name);

    for (const char *space = strchr(line, ' '); space != NULL; space = strchr(space + 1, ' '))
        if (strncmp(space + 1, name, length) == 0 && strncmp(space + 1 + length, "=\"", 2) == 0)
            return space + length + 3;
    return NULL;
}

static bool has_type(const char *line, const char *type) {
    const char *given = attribute(line, "type");
    size_t length = strlen(type);

    return given != NULL && strncmp(given, type, length) == 0 && given[length] == '"';
}

static void read_number(struct parser *parser, const char *line, const char *name, uint64_t *number) {
    const char *text = attribute(line, name);

    if (text == NULL || !memscope_text_decimal(&text, number) || *text != '"')
        parser->status = MEMSCOPE_MALFORMED;
}

static void parse_heap(struct parser *parser, const char *line) {
    struct memscope_glibc_arenas *arenas = parser->arenas;
    struct memscope_glibc_arena arena = {.arena = memscope_arena_unknown, .first_size = arenas->size_count};

    read_number(parser, line, "nr", &arena.index);
    if (memscope_scratch_add(parser->memory->arenas, &arenas->count, &arena, sizeof arena))
        parser->arena = &arenas->list[arenas->count - 1];
    else
        parser->status = MEMSCOPE_NO_MEMORY;
}

static void parse_size(struct parser *parser, const char *line, bool unsorted) {
    struct memscope_glibc_free_size size = {.unsorted = unsorted};

    read_number(parser, line, "from", &size.from_bytes);
    read_number(parser, line, "to", &size.to_bytes);
    read_number(parser, line, "total", &size.bytes);
    read_number(parser, line, "count", &size.blocks);
    if (parser->arena == &parser->arenas->merged)
        parser->status = MEMSCOPE_MALFORMED;
    else if (!memscope_scratch_add(parser->memory->sizes, &parser->arenas->size_count, &size, sizeof size))
        parser->status = MEMSCOPE_NO_MEMORY;
    parser->arena->size_count++;
}

/* Ignores elements and types that a later glibc adds. */
static void parse_figures(struct parser *parser, const char *line) {
    struct memscope_glibc_arena *arena = parser->arena;
    const struct {
        const char *element, *type;
        uint64_t *size, *count;
    } figures[] = {
        {"total", "fast", &arena->fast_bytes, &arena->fast_blocks},
        {"total", "rest", &arena->free_bytes, &arena->free_blocks},
        {"total", "mmap", &parser->arenas->mmapped_bytes, &parser->arenas->mmapped_blocks},
        {"system", "current", &arena->system_bytes, NULL},
        {"system", "max", &arena->system_max_bytes, NULL},
        {"aspace", "total", &arena->address_space_bytes, NULL},
        {"aspace", "mprotect", &arena->writable_bytes, NULL},
        {"aspace", "subheaps", &arena->heaps, NULL},
    };

    for (size_t index = 0; index < sizeof figures / sizeof figures[0]; index++) {
        if (!is_element(line, figures[index].element) || !has_type(line, figures[index].type))
            continue;
        read_number(parser, line, "size", figures[index].size);
        if (figures[index].count != NULL)
            read_number(parser, line, "count", figures[index].count);
    }
}

static void parse_line(struct parser *parser, const char *line) {
    line += strspn(line, " \t");
    if (is_element(line, "malloc")) {
        parser->begun = true;
        if (strcmp(line, "<malloc version=\"1\">") != 0)
            parser->status = MEMSCOPE_MALFORMED;
        parser->arena = &parser->arenas->merged;
    } else if (!parser->begun || parser->ended) {
        parser->status = *line == '\0' ? parser->status : MEMSCOPE_MALFORMED;
    } else if (strncmp(line, "</malloc>", 9) == 0) {
        parser->ended = true;
        if (parser->arena != &parser->arenas->merged)
            parser->status = MEMSCOPE_MALFORMED;
    } else if (strncmp(line, "</heap>", 7) == 0) {
        parser->arena = &parser->arenas->merged;
    } else if (is_element(line, "heap")) {
        parse_heap(parser, line);
    } else if (is_element(line, "size") || is_element(line, "unsorted")) {
        parse_size(parser, line, is_element(line, "unsorted"));
    } else {
        parse_figures(parser, line);
    }
}

static void take(struct parser *parser, const char *text, size_t length) {
    while (length > 0 && parser->status == MEMSCOPE_OK) {
        const char *end = memchr(text, '\n', length);
        size_t count = end != NULL ? (size_t)(end - text) : length;

        if (count >= sizeof parser->line - parser->filled) {
            parser->status = MEMSCOPE_MALFORMED;
            return;
        }
        memcpy(parser->line + parser->filled, text, count);
        parser->filled += count;
        if (end == NULL)
            return;
        parser->line[parser->filled] = '\0';
        parser->filled = 0;
        parse_line(parser, parser->line);
        text += count + 1;
        length -= count + 1;
    }
}

static enum memscope_status finish(const struct parser *parser) {
    if (parser->status == MEMSCOPE_OK && (!parser->ended || parser->filled > 0))
        return MEMSCOPE_MALFORMED;
    return parser->status;
}

enum memscope_status memscope_glibc_parse_arenas(const char *text, size_t length,
                                                 const struct memscope_glibc_arenas_memory *memory,
                                                 struct memscope_glibc_arenas *arenas) {
    struct parser parser;

    begin(&parser, memory, arenas);
    take(&parser, text, length);
    return finish(&parser);
}

/*
 * A call of malloc_info. If another thread forks during the call, the child has a copy of the stream too, and flushes
 * it when it exits. So this is in a mapping that the child inherits, not on this thread's stack, and the child parses
 * nothing.
 */
struct reading {
    struct parser parser;
    pid_t process;
    char buffer[STREAM_BUFFER];
};

static ssize_t write_to_parser(void *argument, const char *text, size_t length) {
    struct reading *reading = argument;

    if (reading->process == getpid())
        take(&reading->parser, text, length);
    return (ssize_t)length;
}

static enum memscope_status read_info(struct reading *reading) {
    static const cookie_io_functions_t functions = {.write = write_to_parser};
    FILE *stream = malloc_info ? fopencookie(reading, "w", functions) : NULL;
    int failed;

    if (!malloc_info)
        return MEMSCOPE_UNSUPPORTED;
    if (stream == NULL)
        return MEMSCOPE_NO_MEMORY;
    setvbuf(stream, reading->buffer, _IOFBF, sizeof reading->buffer);
    failed = malloc_info(0, stream);
    failed |= fclose(stream);
    return failed ? MEMSCOPE_IO : finish(&reading->parser);
}

enum memscope_status memscope_glibc_read_arenas(const struct memscope_glibc_arenas_memory *memory,
                                                struct memscope_glibc_arenas *arenas) {
    struct reading *reading = memscope_array_map(1, sizeof *reading);
    enum memscope_status status;

    if (reading == NULL)
        return MEMSCOPE_NO_MEMORY;
    reading->process = getpid();
    begin(&reading->parser, memory, arenas);
    status = read_info(reading);
    memscope_array_unmap(reading);
    return status;
}
