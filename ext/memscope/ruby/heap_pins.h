/*
 * Which heap pages hold objects that compaction cannot move. Ruby records pins only while it compacts, so they are
 * inferred from what pins: a type with `dmark` but no `dcompact`, a finalizer, a root.
 */
#ifndef MEMSCOPE_HEAP_PINS_H
#define MEMSCOPE_HEAP_PINS_H

#include <stdint.h>

#include "ruby/ruby_heap.h"

#define MEMSCOPE_SLOT_SIZES 32 /* Ruby has at most a dozen */

enum memscope_page_pins {
    MEMSCOPE_PAGE_MAY_PIN = 1, /* an object of the page may be pinned: a root, or held by a thread, symbol, … */
    MEMSCOPE_PAGE_PINS = 2,    /* an object of the page is surely pinned */
    MEMSCOPE_PAGE_RESIZES = 4, /* an object of the page would move to another slot size */
};

/* Objects that compaction would move to another slot size. They are unmovable, as if pinned, unless a slot is free. */
struct memscope_resizes {
    size_t slot_bytes;
    size_t source;       /* objects of this slot size that would move to another */
    size_t target;       /* objects of other slot sizes that would move to this one */
    size_t source_pages; /* pages with such objects of this size, and none that is surely pinned */
};

struct memscope_heap_pins {
    uint8_t *pages; /* for each page of the listing a set of enum memscope_page_pins; in the listing's scratch */
    struct memscope_resizes resizes[MEMSCOPE_SLOT_SIZES];
    size_t slot_sizes;   /* in ascending order */
    const char *refusal; /* why it is not known; NULL when it is */
};

/* Learns this Ruby's layout of Hashes, when the extension is loaded. */
void memscope_heap_pins_learn(void);

/*
 * Reads the flags of every live object, and asks those for their references that pin them: 9 to 16 ms for a million
 * objects. GVL held; creates no objects. Runs the mark functions of C extensions, as any garbage collection does, so no
 * sweep may be under way, and no other Ractor.
 */
void memscope_heap_find_pins(struct memscope_heap_listing *listing, struct memscope_heap_pins *pins);

#endif
