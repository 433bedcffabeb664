#include "dump/dump_output.h"

#include "base/descriptors.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define BUFFER ((size_t)1 << 20)
#define REPLACEMENT "\xef\xbf\xbd"

bool memscope_dump_output_open(struct memscope_dump_output *output, int file) {
    *output = (struct memscope_dump_output){.file = file, .limit = memscope_file_size_limit()};
    output->buffer = memscope_array_map(BUFFER, 1);
    if (output->buffer == NULL)
        output->error = ENOMEM;
    return output->error == 0;
}

void memscope_dump_output_close(struct memscope_dump_output *output) {
    memscope_array_unmap(output->buffer);
    output->buffer = NULL;
}

static void write_out(struct memscope_dump_output *output, const char *bytes, size_t size) {
    if (output->written + size > output->limit)
        output->error = EFBIG;
    while (size > 0 && output->error == 0) {
        ssize_t count = write(output->file, bytes, size);

        if (count < 0 && errno != EINTR)
            output->error = errno;
        if (count > 0) {
            bytes += count;
            size -= (size_t)count;
            output->written += (uint64_t)count;
        }
    }
}

bool memscope_dump_output_flush(struct memscope_dump_output *output) {
    if (output->error == 0)
        write_out(output, output->buffer, output->used);
    output->used = 0;
    return output->error == 0;
}

void memscope_dump_put(struct memscope_dump_output *output, const void *bytes, size_t size) {
    if (output->error != 0)
        return;
    if (size > BUFFER - output->used)
        memscope_dump_output_flush(output);
    if (output->error != 0)
        return;
    if (size > BUFFER) {
        write_out(output, bytes, size);
        return;
    }
    memcpy(output->buffer + output->used, bytes, size);
    output->used += size;
}

void memscope_dump_put_text(struct memscope_dump_output *output, const char *text) {
    memscope_dump_put(output, text, strlen(text));
}

static void put_number(struct memscope_dump_output *output, uint64_t number, unsigned base) {
    char digits[20];
    size_t first = sizeof digits;

    do
        digits[--first] = "0123456789abcdef"[number % base];
    while ((number /= base) > 0);
    memscope_dump_put(output, digits + first, sizeof digits - first);
}

void memscope_dump_put_decimal(struct memscope_dump_output *output, uint64_t number) {
    put_number(output, number, 10);
}

void memscope_dump_put_hexadecimal(struct memscope_dump_output *output, uint64_t number) {
    put_number(output, number, 16);
}

/* The Unicode Standard, table 3-7: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
size_t memscope_dump_utf8_length(const char *text, size_t left) {
    const unsigned char *bytes = (const unsigned char *)text;
    size_t length = bytes[0] < 0x80 ? 1 : bytes[0] < 0xc2 ? 0 : bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;

    if (length == 0 || bytes[0] > 0xf4 || length > left)
        return 0;
    for (size_t index = 1; index < length; index++)
        if ((bytes[index] & 0xc0) != 0x80)
            return 0;
    if ((bytes[0] == 0xe0 && bytes[1] < 0xa0) || (bytes[0] == 0xed && bytes[1] > 0x9f) ||
        (bytes[0] == 0xf0 && bytes[1] < 0x90) || (bytes[0] == 0xf4 && bytes[1] > 0x8f))
        return 0;
    return length;
}

static void put_character(struct memscope_dump_output *output, const char *text, size_t length) {
    char escape[] = "\\u00xx";

    if (length == 0) {
        memscope_dump_put_text(output, REPLACEMENT);
    } else if (*text == '"' || *text == '\\') {
        memscope_dump_put(output, "\\", 1);
        memscope_dump_put(output, text, 1);
    } else if ((unsigned char)*text < 0x20) {
        escape[4] = "0123456789abcdef"[*text >> 4];
        escape[5] = "0123456789abcdef"[*text & 15];
        memscope_dump_put(output, escape, 6);
    } else {
        memscope_dump_put(output, text, length);
    }
}

void memscope_dump_put_string(struct memscope_dump_output *output, struct memscope_text text) {
    memscope_dump_put(output, "\"", 1);
    for (size_t index = 0; index < text.length;) {
        size_t bytes = memscope_dump_utf8_length(text.start + index, text.length - index);

        put_character(output, text.start + index, bytes);
        index += bytes > 0 ? bytes : 1;
    }
    memscope_dump_put(output, "\"", 1);
}
