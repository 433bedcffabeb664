#include "graph/top_rows.h"

#include "base/mapped_array.h"

#include <string.h>

enum memscope_status memscope_top_rows_open(struct memscope_top_rows *largest, size_t room) {
    memset(largest, 0, sizeof *largest);
    largest->items = memscope_array_map(room, sizeof *largest->items);
    largest->room = room;
    return largest->items == NULL ? MEMSCOPE_NO_MEMORY : MEMSCOPE_OK;
}

void memscope_top_rows_close(struct memscope_top_rows *largest) {
    memscope_array_unmap(largest->items);
    memset(largest, 0, sizeof *largest);
}

static bool smaller(const struct memscope_weighed *one, const struct memscope_weighed *other) {
    return one->weight != other->weight ? one->weight < other->weight : one->number > other->number;
}

/* Replaces the first of count items by `item`, and moves `item` down to where it belongs in the heap. */
static void sift_down(struct memscope_weighed *items, size_t count, struct memscope_weighed item) {
    size_t at = 0;

    for (size_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && smaller(&items[child + 1], &items[child]))
            child++;
        if (!smaller(&items[child], &item))
            break;
        items[at] = items[child];
        at = child;
    }
    items[at] = item;
}

static void sift_up(struct memscope_weighed *items, size_t at, struct memscope_weighed item) {
    for (; at > 0 && smaller(&item, &items[(at - 1) / 2]); at = (at - 1) / 2)
        items[at] = items[(at - 1) / 2];
    items[at] = item;
}

void memscope_top_rows_offer(struct memscope_top_rows *largest, uint64_t weight, uint32_t number) {
    struct memscope_weighed item = {weight, number};

    if (!memscope_top_rows_may_take(largest, weight))
        return;
    if (largest->count < largest->room)
        sift_up(largest->items, largest->count++, item);
    else if (smaller(&largest->items[0], &item))
        sift_down(largest->items, largest->count, item);
}

void memscope_top_rows_sort(struct memscope_top_rows *largest) {
    for (size_t left = largest->count; left > 1; left--) {
        struct memscope_weighed smallest = largest->items[0];

        sift_down(largest->items, left - 1, largest->items[left - 1]);
        largest->items[left - 1] = smallest;
    }
}
