/* Small kernel text files (/proc, /sys/fs/cgroup), read whole into the caller's buffer. */
#ifndef MEMSCOPE_TEXT_FILE_H
#define MEMSCOPE_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/*
 * Reads path into buffer and ends it with a NUL. *length is the text's length without the NUL. Returns
 * MEMSCOPE_TRUNCATED when the file is capacity - 1 bytes or longer (buffer then holds its beginning). No allocation, no
 * GVL needed; a few µs.
 */
enum memscope_status memscope_text_file_read(const char *path, char *buffer, size_t capacity, size_t *length);

/*
 * Parses an unsigned decimal number at *cursor and moves *cursor past it. Returns false, with *cursor unmoved, if there
 * is no digit or the number does not fit.
 */
bool memscope_text_decimal(const char **cursor, uint64_t *value);

/* Likewise for hexadecimal digits without a prefix. */
bool memscope_text_hexadecimal(const char **cursor, uint64_t *value);

#endif
