/* Keeps the largest of many weighted numbers, in one pass, with memory for the kept ones only. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct memscope_weighed {
    uint64_t weight;
    uint32_t number;
};

struct memscope_top_rows {
    struct memscope_weighed *items; /* a min-heap until sorted */
    size_t count, room;
};

enum memscope_status memscope_top_rows_open(struct memscope_top_rows *largest, size_t room);

/* Returns true if an offer of this weight may change the kept rows. */
static inline bool memscope_top_rows_may_take(const struct memscope_top_rows *largest, uint64_t weight) {
    return weight > 0 && (largest->count < largest->room || (largest->room > 0 && weight >= largest->items[0].weight));
}

/* Weight 0 is never among the largest. */
void memscope_top_rows_offer(struct memscope_top_rows *largest, uint64_t weight, uint32_t number);

/* Sorts the rows by falling weight, and those of equal weight by number. Nothing can be offered afterwards. */
void memscope_top_rows_sort(struct memscope_top_rows *largest);

/* Idempotent. A zeroed struct is closed. */
void memscope_top_rows_close(struct memscope_top_rows *largest);
