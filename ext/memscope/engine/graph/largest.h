/* Keeps the largest of many weighted numbers, in one pass, with memory for the kept ones only. */
#ifndef MEMSCOPE_LARGEST_H
#define MEMSCOPE_LARGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct memscope_weighed {
    uint64_t weight;
    uint32_t number;
};

struct memscope_largest {
    struct memscope_weighed *items; /* a min-heap until sorted */
    size_t count, room;
};

enum memscope_status memscope_largest_open(struct memscope_largest *largest, size_t room);

/* Whether an offer of this weight may change what is kept. */
static inline bool memscope_largest_may_take(const struct memscope_largest *largest, uint64_t weight) {
    return weight > 0 && (largest->count < largest->room || (largest->room > 0 && weight >= largest->items[0].weight));
}

/* Weight 0 is never among the largest. */
void memscope_largest_offer(struct memscope_largest *largest, uint64_t weight, uint32_t number);

/* The largest first; of equal weights, the smaller number first. Nothing can be offered afterwards. */
void memscope_largest_sort(struct memscope_largest *largest);

/* Idempotent; a zeroed struct counts as closed. */
void memscope_largest_close(struct memscope_largest *largest);

#endif
