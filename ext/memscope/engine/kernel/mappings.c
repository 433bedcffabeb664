#include "kernel/mappings.h"

#include <string.h>

#include "base/copy.h"
#include "base/range.h"
#include "base/text_file.h"

/* Holds the longest line: the numbers, then a path of PATH_MAX characters, each escaped to four. */
#define WINDOW ((size_t)32 << 10)

/* "7f1de8000000-7f1de8021000 rw-p 00000000 fe:00 357765   /path" (proc_pid_maps(5)) */
static bool parse_header(const char *line, struct memscope_mapping *mapping) {
    const char *cursor = line;
    uint64_t start, end, offset, major, minor;

    if (!memscope_text_hexadecimal(&cursor, &start) || !memscope_text_skip(&cursor, "-") ||
        !memscope_text_hexadecimal(&cursor, &end) || !memscope_text_skip(&cursor, " ") || strlen(cursor) < 5 ||
        end <= start)
        return false;
    memset(mapping, 0, sizeof *mapping);
    mapping->start = (uintptr_t)start;
    mapping->end = (uintptr_t)end;
    mapping->readable = cursor[0] == 'r';
    mapping->writable = cursor[1] == 'w';
    mapping->executable = cursor[2] == 'x';
    mapping->shared = cursor[3] == 's';
    cursor += 4;
    if (!memscope_text_skip(&cursor, " ") || !memscope_text_hexadecimal(&cursor, &offset) ||
        !memscope_text_skip(&cursor, " ") || !memscope_text_hexadecimal(&cursor, &major) ||
        !memscope_text_skip(&cursor, ":") || !memscope_text_hexadecimal(&cursor, &minor) ||
        !memscope_text_skip(&cursor, " ") || !memscope_text_decimal(&cursor, &mapping->inode))
        return false;
    mapping->name = cursor + strspn(cursor, " ");
    return true;
}

/* "Rss: 132 kB" and "VmFlags: rd wr mr mw me ac nr sd". All other smaps fields are skipped. */
static bool parse_field(const char *line, struct memscope_mapping *mapping) {
    uint64_t kib;

    if (memscope_text_skip(&line, "Rss:")) {
        line += strspn(line, " ");
        if (!memscope_text_decimal(&line, &kib))
            return false;
        mapping->resident_bytes = kib * 1024;
    } else if (memscope_text_skip(&line, "VmFlags:")) {
        mapping->noreserve = strstr(line, " nr") != NULL && strstr(line, " dp") == NULL;
    }
    return true;
}

static bool is_header(const char *line) {
    return (*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f');
}

/* Neighbouring mappings mostly share a file: its name is stored once. */
static const char *keep_name(struct memscope_scratch *names, const struct memscope_mapping *previous,
                             const char *name) {
    size_t size = strlen(name) + 1;
    char *copy;

    if (*name == '\0')
        return "";
    if (previous != NULL && strcmp(previous->name, name) == 0)
        return previous->name;
    copy = memscope_scratch_extend(names, size);
    return copy == NULL ? NULL : memcpy(copy, name, size);
}

struct parser {
    const struct memscope_mappings_memory *memory;
    struct memscope_mappings *mappings;
    struct memscope_mapping *current; /* the mapping that smaps fields go to: the last listed, or passed_over */
    struct memscope_mapping passed_over;
};

/*
 * The kernel returns the file in parts. Between two parts, the mapping listed last may be merged into a larger one: it
 * stays in the list, and only the rest of the larger mapping is added.
 */
static enum memscope_status parse_mapping(struct parser *parser, const char *line) {
    struct memscope_mappings *mappings = parser->mappings;
    const struct memscope_mapping *last = mappings->count > 0 ? &mappings->list[mappings->count - 1] : NULL;
    struct memscope_mapping mapping;

    if (!parse_header(line, &mapping))
        return MEMSCOPE_MALFORMED;
    parser->current = &parser->passed_over;
    if (last != NULL && mapping.start < last->end)
        mapping.start = last->end;
    if (mapping.start >= mapping.end)
        return MEMSCOPE_OK;
    mapping.name = keep_name(parser->memory->names, last, mapping.name);
    if (mapping.name == NULL || !memscope_scratch_add(parser->memory->list, &mappings->count, &mapping, sizeof mapping))
        return MEMSCOPE_NO_MEMORY;
    parser->current = &mappings->list[mappings->count - 1];
    return MEMSCOPE_OK;
}

static enum memscope_status parse_line(struct parser *parser, const char *line) {
    if (is_header(line))
        return parse_mapping(parser, line);
    return parser->current != NULL && parse_field(line, parser->current) ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
}

enum memscope_status memscope_mappings_read_file(const char *path, const struct memscope_mappings_memory *memory,
                                                 struct memscope_mappings *mappings) {
    char window[WINDOW];
    struct memscope_text_lines lines = {.window = window, .capacity = sizeof window};
    struct parser parser = {.memory = memory, .mappings = mappings};
    enum memscope_status status;
    const char *line;

    *mappings = (struct memscope_mappings){.list = memscope_scratch_take(memory->list, 0)};
    status = mappings->list == NULL ? MEMSCOPE_NO_MEMORY : memscope_text_lines_open(&lines, path);
    if (status != MEMSCOPE_OK)
        return status;
    while (status == MEMSCOPE_OK && (line = memscope_text_lines_next(&lines)) != NULL)
        status = parse_line(&parser, line);
    memscope_text_lines_close(&lines);
    return status == MEMSCOPE_OK ? lines.status : status;
}

enum memscope_status memscope_mappings_read(bool smaps, const struct memscope_mappings_memory *memory,
                                            struct memscope_mappings *mappings) {
    char path[MEMSCOPE_PROC_PATH];

    return memscope_mappings_read_file(memscope_path_in_proc(path, smaps ? "smaps" : "maps"), memory, mappings);
}

const struct memscope_mapping *memscope_mappings_find(const struct memscope_mappings *mappings, uintptr_t address) {
    size_t index = memscope_range_position(mappings->list, mappings->count, sizeof *mappings->list, address);

    return index < mappings->count && mappings->list[index].start <= address ? &mappings->list[index] : NULL;
}

bool memscope_mapping_is_anonymous(const struct memscope_mapping *mapping) {
    return mapping->inode == 0 && !mapping->shared &&
           (mapping->name[0] == '\0' || strncmp(mapping->name, "[anon:", 6) == 0);
}

/* "/anon_hugepage (deleted)": fs/hugetlbfs/inode.c, hugetlb_file_setup. */
bool memscope_mapping_is_hugetlb(const struct memscope_mapping *mapping) {
    return strncmp(mapping->name, "/anon_hugepage", sizeof "/anon_hugepage" - 1) == 0;
}

bool memscope_mapping_is_program_break(const struct memscope_mapping *mapping) {
    return strcmp(mapping->name, "[heap]") == 0;
}

bool memscope_mapping_is_data(const struct memscope_mapping *mapping) {
    return memscope_mapping_is_anonymous(mapping) && mapping->readable && mapping->writable && !mapping->executable;
}
