/*
 * A stable sort in caller-provided memory: glibc's qsort may call malloc. Inlined, so that item size and comparison are
 * constants at each use.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Returns true if left sorts before right or is equal to it. */
typedef bool memscope_in_order(const void *left, const void *right);

#define MEMSCOPE_SORTS static inline __attribute__((always_inline))

/* Merges the two sorted parts of `from`, its first `middle` items and the rest, into `to`. */
MEMSCOPE_SORTS void memscope_merge(const char *from, size_t middle, size_t count, size_t size, char *to,
                                   memscope_in_order *in_order) {
    const char *left = from, *left_end = from + middle * size, *right = left_end, *end = from + count * size;

    for (; left < left_end || right < end; to += size) {
        bool take_left = right == end || (left < left_end && in_order(left, right));

        memcpy(to, take_left ? left : right, size);
        *(take_left ? &left : &right) += size;
    }
}

/* Bottom-up. `buffer` is as large as `items`. */
MEMSCOPE_SORTS void memscope_merge_sort(char *items, size_t count, size_t size, char *buffer,
                                        memscope_in_order *in_order) {
    char *from = items, *to = buffer;

    for (size_t width = 1; width < count; width *= 2) {
        char *swap = from;

        for (size_t start = 0; start < count; start += 2 * width) {
            size_t length = count - start < 2 * width ? count - start : 2 * width;

            memscope_merge(from + start * size, length < width ? length : width, length, size, to + start * size,
                           in_order);
        }
        from = to;
        to = swap;
    }
    if (from != items)
        memcpy(items, from, count * size);
}

#undef MEMSCOPE_SORTS
