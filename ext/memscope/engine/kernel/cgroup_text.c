#include "kernel/cgroup_text.h"

#include "base/text_file.h"

#include <string.h>

/* v1 prints PAGE_COUNTER_MAX pages for "no limit": 2^63 bytes minus one page, which is 64 KiB at most. */
#define V1_UNLIMITED (((UINT64_C(1) << 63) - 1) & ~UINT64_C(0xffff))

static bool ends_line(const char *text) {
    return *text == '\0' || *text == '\n';
}

/* Copies the text from start to end. Returns false when it exceeds the length of a path. */
static bool copy_path(char *path, const char *start, const char *end) {
    size_t length = (size_t)(end - start);

    if (length >= MEMSCOPE_CGROUP_PATH)
        return false;
    memcpy(path, start, length);
    path[length] = '\0';
    return true;
}

static bool lists(const char *controllers, const char *end, const char *controller) {
    const size_t length = strlen(controller);

    while (controllers < end) {
        const char *comma = memchr(controllers, ',', (size_t)(end - controllers));
        const char *stop = comma ? comma : end;

        if ((size_t)(stop - controllers) == length && memcmp(controllers, controller, length) == 0)
            return true;
        controllers = stop + 1;
    }
    return false;
}

/* A line is "hierarchy:controllers:path", or "0::path" in v2. */
enum memscope_status memscope_cgroup_parse_membership(const char *text, const char *controller,
                                                      struct memscope_cgroup_membership *membership) {
    const char *line;

    memset(membership, 0, sizeof *membership);
    for (line = text; *line; line = memscope_text_next_line(line)) {
        const char *end = line + strcspn(line, "\n");
        const char *controllers = memchr(line, ':', (size_t)(end - line));
        const char *path = controllers ? memchr(controllers + 1, ':', (size_t)(end - controllers - 1)) : NULL;

        if (!path || path[1] != '/')
            continue;
        if (strncmp(line, "0::", 3) == 0)
            membership->has_v2 = copy_path(membership->v2_path, path + 1, end);
        else if (lists(controllers + 1, path, controller))
            membership->has_v1 = copy_path(membership->v1_path, path + 1, end);
    }
    return membership->has_v1 || membership->has_v2 ? MEMSCOPE_OK : MEMSCOPE_NOT_FOUND;
}

/* The kernel writes blank, tab, newline and backslash in a mount's paths as \ooo. */
static bool copy_escaped(char *path, const char *text, const char *end) {
    size_t length = 0;

    while (text < end) {
        unsigned char character = (unsigned char)*text;

        if (character == '\\' && end - text >= 4 && strspn(text + 1, "01234567") >= 3) {
            character = (unsigned char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
            text += 3;
        }
        if (length + 1 >= MEMSCOPE_CGROUP_PATH)
            return false;
        path[length++] = (char)character;
        text++;
    }
    path[length] = '\0';
    return true;
}

/* Start and end of the next blank-separated word. Returns false at the end of the line. */
static bool next_word(const char **cursor, const char **start) {
    *start = *cursor + strspn(*cursor, " ");
    *cursor = *start + strcspn(*start, " \n");
    return *cursor > *start;
}

static bool is_word(const char *start, const char *end, const char *word) {
    return (size_t)(end - start) == strlen(word) && memcmp(start, word, (size_t)(end - start)) == 0;
}

/* "id parent device root point options [optional ...] - type source super-options" */
bool memscope_cgroup_parse_mount(const char *line, const char *controller, struct memscope_cgroup_mount *mount) {
    const char *cursor = line;
    const char *start;
    const char *type;
    int index = 0;

    while (next_word(&cursor, &start) && !is_word(start, cursor, "-")) {
        if (index == 3 && !copy_escaped(mount->root, start, cursor))
            return false;
        if (index == 4 && !copy_escaped(mount->point, start, cursor))
            return false;
        index++;
    }
    if (index < 6 || !next_word(&cursor, &type))
        return false;
    mount->is_v2 = is_word(type, cursor, "cgroup2");
    if (mount->is_v2)
        return true;
    return is_word(type, cursor, "cgroup") && next_word(&cursor, &start) && next_word(&cursor, &start) &&
           lists(start, cursor, controller);
}

void memscope_cgroup_parse_figure(const char *text, const char *key, struct memscope_cgroup_figure *figure) {
    bool found = key == NULL;

    figure->unlimited = false;
    figure->value = 0;
    figure->status = MEMSCOPE_NOT_FOUND;
    while (!found && *text) {
        found = memscope_text_skip(&text, key) && memscope_text_skip(&text, " ");
        text = found ? text : memscope_text_next_line(text);
    }
    if (!found)
        return;
    figure->status = MEMSCOPE_OK;
    figure->unlimited = strncmp(text, "max", 3) == 0 && ends_line(text + 3);
    if (figure->unlimited)
        return;
    if (!memscope_text_decimal(&text, &figure->value) || !ends_line(text))
        figure->status = MEMSCOPE_MALFORMED;
    else
        figure->unlimited = figure->value >= V1_UNLIMITED;
}

void memscope_cgroup_parse_quota(const char *text, struct memscope_cgroup_cpus *cpus) {
    uint64_t quota, period;

    cpus->status = MEMSCOPE_OK;
    cpus->unlimited = strncmp(text, "max", 3) == 0 || strncmp(text, "-1", 2) == 0;
    cpus->count = 0;
    if (cpus->unlimited)
        return;
    if (memscope_text_decimal(&text, &quota) && *text++ == ' ' && memscope_text_decimal(&text, &period) &&
        ends_line(text) && period > 0)
        cpus->count = (double)quota / (double)period;
    else
        cpus->status = MEMSCOPE_MALFORMED;
}

/* "name=" and a number with two decimals. */
static bool parse_average(const char **cursor, const char *name, double *percent) {
    uint64_t whole, hundredths;

    if (!memscope_text_skip(cursor, name) || !memscope_text_decimal(cursor, &whole) ||
        !memscope_text_skip(cursor, ".") || !memscope_text_decimal(cursor, &hundredths))
        return false;
    *percent = (double)whole + (double)hundredths / 100;
    return true;
}

static bool parse_stall(const char *text, const char *name, struct memscope_cgroup_stall *stall) {
    while (*text && !memscope_text_skip(&text, name))
        text = memscope_text_next_line(text);
    return parse_average(&text, " avg10=", &stall->avg10) && parse_average(&text, " avg60=", &stall->avg60) &&
           parse_average(&text, " avg300=", &stall->avg300) && memscope_text_skip(&text, " total=") &&
           memscope_text_decimal(&text, &stall->total_us) && ends_line(text);
}

enum memscope_status memscope_cgroup_parse_pressure(const char *text, struct memscope_cgroup_pressure *pressure) {
    bool complete = parse_stall(text, "some", &pressure->some) && parse_stall(text, "full", &pressure->full);

    return complete ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
}
