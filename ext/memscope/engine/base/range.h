/* Address ranges, and binary search in sorted lists: of items that begin with a range, and of items with a number. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct memscope_range {
    uintptr_t start;
    uintptr_t end;
};

static inline bool memscope_range_contains(struct memscope_range range, uintptr_t address) {
    return address >= range.start && address < range.end;
}

/*
 * The index of the first item whose range ends after `address`. `list` has `count` items of `size` bytes, each
 * beginning with a range.
 */
static inline size_t memscope_range_position(const void *list, size_t count, size_t size, uintptr_t address) {
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (((const struct memscope_range *)((const char *)list + middle * size))->end <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * The index of the first item whose number is at least `number`. The list has `count` items of `size` bytes. `numbers`
 * points to the number in the first of them.
 */
static inline size_t memscope_number_position(const uint32_t *numbers, size_t count, size_t size, uint32_t number) {
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (*(const uint32_t *)(const void *)((const char *)numbers + middle * size) < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
