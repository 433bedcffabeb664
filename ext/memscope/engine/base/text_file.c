#include "base/text_file.h"

#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
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
        if (number > (UINT64_MAX - (unsigned)digit) / base)
            return false;
        number = number * base + (unsigned)digit;
        text++;
    }
    if (text == *cursor)
        return false;
    *cursor = text;
    *value = number;
    return true;
}

bool memscope_text_decimal(const char **cursor, uint64_t *value) {
    return parse_number(cursor, 10, value);
}

bool memscope_text_hexadecimal(const char **cursor, uint64_t *value) {
    return parse_number(cursor, 16, value);
}
