/*
 * Which heap pages hold objects that compaction cannot move. Ruby notes pins only while it compacts, so this goes by
 * what pins: a mark function that has no compaction beside it, a finalizer, a root.
 */
#ifndef MEMSCOPE_HEAP_PINS_H
#define MEMSCOPE_HEAP_PINS_H

#include <stdint.h>

#include "ruby/ruby_heap.h"

#define MEMSCOPE_SLOT_SIZES 32 /* Ruby has at most a dozen */

enum memscope_page_pins {
    MEMSCOPE_PAGE_MAY_PIN = 1, /* an object of the page may be pinned: a root, or held by a thread, symbol, … */
    MEMSCOPE_PAGE_PINS = 2,    /* an object of the page is surely pinned */
    MEMSCOPE_PAGE_MISFITS = 4, /* an object of the page would go to another slot size */
};

/* The objects of one slot size that would go to another: they stay, as if pinned, unless a slot is free there. */
struct memscope_misfits {
    size_t slot_bytes;
    size_t leaving;    /* objects */
    size_t entering;   /* objects of other sizes that would come here */
    size_t left_pages; /* pages with objects that would leave, and none that is surely pinned */
};

struct memscope_heap_pins {
    uint8_t *pages; /* for each page of the listing a set of enum memscope_page_pins; in the listing's scratch */
    struct memscope_misfits misfits[MEMSCOPE_SLOT_SIZES];
    size_t slot_sizes;   /* in ascending order */
    const char *refusal; /* why it is not known; NULL when it is */
};

/*
 * Reads the flags of every live object, and asks those for their references that pin them: 9 to 16 ms for a million
 * objects. GVL held; creates no objects. Runs the mark functions of C extensions, as any garbage collection does, so no
 * sweep may be under way, and no other Ractor.
 */
void memscope_heap_find_pins(struct memscope_heap_listing *listing, struct memscope_heap_pins *pins);

#endif
