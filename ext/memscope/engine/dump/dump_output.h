/*
 * The output of a dump: a buffer in mapped memory, and its descriptor. After the first error, nothing more is written
 * and further output is dropped, so callers need to check only at the end. For one thread. No GVL, no malloc.
 */
#pragma once

#include <stdint.h>

#include "base/mapped_array.h"
#include "base/text.h"

struct memscope_dump_output {
    int file;
    int error;        /* errno of the first failure, 0 for none */
    uint64_t limit;   /* bytes that the process may write to a file (RLIMIT_FSIZE) */
    uint64_t written; /* to the file */
    char *buffer;
    size_t used;
};

/* Returns false with `error` set if there is no memory. Always close it. */
bool memscope_dump_output_open(struct memscope_dump_output *output, int file);
void memscope_dump_output_close(struct memscope_dump_output *output);

/* Writes the buffer. Returns false after any error. */
bool memscope_dump_output_flush(struct memscope_dump_output *output);

void memscope_dump_put(struct memscope_dump_output *output, const void *bytes, size_t size);
void memscope_dump_put_text(struct memscope_dump_output *output, const char *text);
void memscope_dump_put_decimal(struct memscope_dump_output *output, uint64_t number);
void memscope_dump_put_hexadecimal(struct memscope_dump_output *output, uint64_t number);

/* Puts a JSON string with its quotes. Bytes that are not valid UTF-8 become U+FFFD. */
void memscope_dump_put_string(struct memscope_dump_output *output, struct memscope_text text);

/* The length in bytes of the character at text, of which `left` bytes may be read, or 0 if it is not valid UTF-8. */
size_t memscope_dump_utf8_length(const char *text, size_t left);
