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

/* Returns true if the item is before the position of `key`, which is a number. */
typedef bool memscope_is_before(const void *item, uint64_t key);

/*
 * The number of items that are before `key`, in a sorted list of `count` items of `size` bytes. Inlined, so that size
 * and comparison are constants at each use.
 */
static inline __attribute__((always_inline)) size_t memscope_position(const void *list, size_t count, size_t size,
                                                                      uint64_t key, memscope_is_before *is_before) {
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (is_before((const char *)list + middle * size, key))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static inline bool memscope_range_is_before(const void *item, uint64_t address) {
    return ((const struct memscope_range *)item)->end <= address;
}

static inline bool memscope_number_is_before(const void *item, uint64_t number) {
    return *(const uint32_t *)item < number;
}

/*
 * The index of the first item whose range ends after `address`. `list` has `count` items of `size` bytes, each
 * beginning with a range.
 */
static inline size_t memscope_range_position(const void *list, size_t count, size_t size, uintptr_t address) {
    return memscope_position(list, count, size, address, memscope_range_is_before);
}

/*
 * The index of the first item whose number is at least `number`. The list has `count` items of `size` bytes. `numbers`
 * points to the number in the first of them.
 */
static inline size_t memscope_number_position(const uint32_t *numbers, size_t count, size_t size, uint32_t number) {
    return memscope_position(numbers, count, size, number, memscope_number_is_before);
}
