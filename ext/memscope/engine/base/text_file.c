#include "base/text_file.h"

#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum memscope_status memscope_text_file_read(const char *path, char *buffer, size_t capacity, size_t *length) {
    size_t filled = 0;
    int descriptor = memscope_descriptor_open(path, O_RDONLY);

    *length = 0;
    if (descriptor < 0)
        return memscope_status_of_errno(errno);
    while (filled + 1 < capacity) {
        ssize_t count = read(descriptor, buffer + filled, capacity - filled - 1);

        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0) {
            enum memscope_status status = memscope_status_of_errno(errno);

            memscope_descriptor_close(descriptor);
            return status;
        }
        if (count == 0)
            break;
        filled += (size_t)count;
    }
    memscope_descriptor_close(descriptor);
    buffer[filled] = '\0';
    *length = filled;
    return filled + 1 == capacity ? MEMSCOPE_TRUNCATED : MEMSCOPE_OK;
}

enum memscope_status memscope_text_lines_open(struct memscope_text_lines *lines, const char *path) {
    lines->start = lines->filled = 0;
    lines->descriptor = memscope_descriptor_open(path, O_RDONLY);
    lines->status = lines->descriptor < 0 ? memscope_status_of_errno(errno) : MEMSCOPE_OK;
    return lines->status;
}

const char *memscope_text_lines_next(struct memscope_text_lines *lines) {
    bool is_tail = false; /* of a line that the window cannot hold */

    for (;;) {
        char *line = lines->window + lines->start, *end = memchr(line, '\n', lines->filled - lines->start);
        ssize_t count;

        if (end != NULL) {
            *end = '\0';
            lines->start = (size_t)(end + 1 - lines->window);
            if (!is_tail)
                return line;
            is_tail = false;
            continue;
        }
        lines->filled -= lines->start;
        memmove(lines->window, line, lines->filled);
        lines->start = 0;
        if (lines->filled == lines->capacity) {
            lines->filled = 0;
            lines->status = MEMSCOPE_MALFORMED;
            is_tail = true;
        }
        count = read(lines->descriptor, lines->window + lines->filled, lines->capacity - lines->filled);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            lines->status = memscope_status_of_errno(errno);
        else if (count == 0 && lines->filled > 0)
            lines->status = MEMSCOPE_MALFORMED;
        if (count <= 0)
            return NULL;
        lines->filled += (size_t)count;
    }
}

void memscope_text_lines_close(struct memscope_text_lines *lines) {
    memscope_descriptor_close(lines->descriptor);
}

static int digit_of(char character, unsigned base) {
    unsigned digit;

    if (character >= '0' && character <= '9')
        digit = (unsigned)(character - '0');
    else if (character >= 'a' && character <= 'f')
        digit = (unsigned)(character - 'a') + 10;
    else
        return -1;
    return digit < base ? (int)digit : -1;
}

static bool parse_number(const char **cursor, unsigned base, uint64_t *value) {
    const char *text = *cursor;
    uint64_t number = 0;
    int digit;

    while ((digit = digit_of(*text, base)) >= 0) {
        if (__builtin_mul_overflow(number, base, &number) || __builtin_add_overflow(number, digit, &number))
            return false;
        text++;
    }
    if (text == *cursor)
        return false;
    *cursor = text;
    *value = number;
    return true;
}

bool memscope_text_skip(const char **cursor, const char *expected) {
    size_t length = strlen(expected);

    if (strncmp(*cursor, expected, length) != 0)
        return false;
    *cursor += length;
    return true;
}

const char *memscope_text_next_line(const char *text) {
    const char *end = strchr(text, '\n');

    return end ? end + 1 : text + strlen(text);
}

bool memscope_text_decimal(const char **cursor, uint64_t *value) {
    return parse_number(cursor, 10, value);
}

bool memscope_text_hexadecimal(const char **cursor, uint64_t *value) {
    return parse_number(cursor, 16, value);
}

bool memscope_text_number(const char *text, const char *key, const char *unit, uint64_t *number) {
    uint64_t found;

    for (const char *line = text; *line != '\0'; line = memscope_text_next_line(line)) {
        if (!memscope_text_skip(&line, key) || *line != ':')
            continue;
        line++;
        line += strspn(line, " \t");
        if (!memscope_text_decimal(&line, &found) || !memscope_text_skip(&line, unit) || *line != '\n')
            return false;
        *number = found;
        return true;
    }
    return false;
}

bool memscope_text_bytes(const char *text, const char *key, uint64_t *bytes) {
    uint64_t kibibytes;

    if (!memscope_text_number(text, key, " kB", &kibibytes) || kibibytes > UINT64_MAX / 1024)
        return false;
    *bytes = kibibytes * 1024;
    return true;
}
