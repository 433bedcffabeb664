/* Text files of the kernel (/proc, /sys/fs/cgroup): read whole, or line by line, into the caller's buffer. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/*
 * Reads path into buffer and ends it with a NUL. *length is the text's length without the NUL. Returns
 * MEMSCOPE_TRUNCATED when the file is capacity - 1 bytes or longer (buffer then holds its beginning). No allocation.
 * Needs no GVL. Takes a few µs.
 */
enum memscope_status memscope_text_file_read(const char *path, char *buffer, size_t capacity, size_t *length);

/* A file that is read line by line. */
struct memscope_text_lines {
    char *window;
    size_t capacity; /* of the window */
    int descriptor;
    size_t start, filled;
    enum memscope_status status; /* at the end: MEMSCOPE_MALFORMED if a line was left out */
};

/* The caller has set window and capacity. */
enum memscope_status memscope_text_lines_open(struct memscope_text_lines *lines, const char *path);

/*
 * The next line, without its newline, or NULL at the end. Leaves out lines without an end, or too long for the window.
 */
const char *memscope_text_lines_next(struct memscope_text_lines *lines);

void memscope_text_lines_close(struct memscope_text_lines *lines);

/*
 * Finds the line "key:", blanks, a number, `unit`. Returns false, with *number unchanged, if there is none, or if the
 * number does not fit.
 */
bool memscope_text_number(const char *text, const char *key, const char *unit, uint64_t *number);

/* The same for an amount of memory in kB. */
bool memscope_text_bytes(const char *text, const char *key, uint64_t *bytes);

/* Moves *cursor past `expected`. Returns false, with *cursor unmoved, if other text is there. */
bool memscope_text_skip(const char **cursor, const char *expected);

/* The start of the line after the one at `text`, or the text's end. */
const char *memscope_text_next_line(const char *text);

/*
 * Parses an unsigned decimal number at *cursor and moves *cursor past it. Returns false, with *cursor unmoved, if there
 * is no digit or the number does not fit.
 */
bool memscope_text_decimal(const char **cursor, uint64_t *value);

/* Likewise for hexadecimal digits without a prefix. */
bool memscope_text_hexadecimal(const char **cursor, uint64_t *value);
