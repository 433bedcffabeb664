/* Heap pages with objects that compaction cannot move (found by ruby/heap/pin_survey.h). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MEMSCOPE_SLOT_SIZES 32 /* Ruby has at most a dozen */

enum memscope_page_pins {
    MEMSCOPE_PAGE_MAY_PIN = 1, /* an object on the page may be pinned: a Symbol, a root, on a thread's stack, … */
    MEMSCOPE_PAGE_PINS = 2,    /* an object on the page is surely pinned */
    MEMSCOPE_PAGE_RESIZES = 4, /* an object on the page would move to another slot size */
};

/* Objects that compaction would move to another slot size. Unless that size has a free slot, they stay as if pinned. */
struct memscope_resizes {
    size_t slot_bytes;
    size_t source;   /* objects of this slot size that would move to another */
    size_t unplaced; /* of these, objects with an unknown target size */
    size_t target;   /* objects of other slot sizes that would move to this one */
};

struct memscope_heap_pins {
    uint8_t *pages; /* flags of enum memscope_page_pins, one byte per listed page, in scratch */
    struct memscope_resizes resizes[MEMSCOPE_SLOT_SIZES];
    size_t slot_sizes;   /* entries in resizes, ascending by slot_bytes */
    const char *refusal; /* the reason why pins are unknown, NULL if they are known */
};
