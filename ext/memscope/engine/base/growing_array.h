/* An array that grows as it is filled, in mapped memory (base/mapped_array.h). */
#ifndef MEMSCOPE_GROWING_ARRAY_H
#define MEMSCOPE_GROWING_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mapped_array.h"

struct memscope_growing_array {
    void *list;   /* NULL: empty */
    size_t bytes; /* mapped */
};

/*
 * Makes room for `bytes` bytes in all, at least doubling the room if it has to grow. The list may move. False if the
 * kernel refuses.
 */
static inline bool memscope_growing_array_reserve(struct memscope_growing_array *array, size_t bytes) {
    size_t target = array->bytes * 2 > bytes ? array->bytes * 2 : bytes;
    void *list;

    if (bytes <= array->bytes)
        return true;
    list = array->list == NULL ? memscope_array_map(target, 1) : memscope_array_grow(array->list, target, 1);
    if (list == NULL)
        return false;
    *array = (struct memscope_growing_array){list, target};
    return true;
}

static inline bool memscope_growing_array_reserve_items(struct memscope_growing_array *array, uint64_t count,
                                                        size_t item_size) {
    return memscope_growing_array_reserve(array, (size_t)(count * item_size));
}

static inline void memscope_growing_array_close(struct memscope_growing_array *array) {
    memscope_array_unmap(array->list);
    *array = (struct memscope_growing_array){NULL, 0};
}

#endif
