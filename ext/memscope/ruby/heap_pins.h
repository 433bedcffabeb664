/*
 * Which heap pages hold objects that compaction cannot move. Ruby records pins only while it compacts, so they are
 * inferred from what causes them: a type with `dmark` but no `dcompact`, a finalizer, a root.
 */
#ifndef MEMSCOPE_HEAP_PINS_H
#define MEMSCOPE_HEAP_PINS_H

#include <stdint.h>

#include "ruby/ruby_heap.h"

#define MEMSCOPE_SLOT_SIZES 32 /* Ruby has at most a dozen */

enum memscope_page_pins {
    MEMSCOPE_PAGE_MAY_PIN = 1, /* an object on the page may be pinned: a Symbol, a root, held by a thread, … */
    MEMSCOPE_PAGE_PINS = 2,    /* an object on the page is surely pinned */
    MEMSCOPE_PAGE_RESIZES = 4, /* an object on the page would move to another slot size */
};

/* Objects that compaction would move to another slot size. Unless that size has a free slot, they stay as if pinned. */
struct memscope_resizes {
    size_t slot_bytes;
    size_t source;       /* objects of this slot size that would move to another */
    size_t target;       /* objects of other slot sizes that would move to this one */
    size_t source_pages; /* pages of this size with such objects and without any that is surely pinned */
};

struct memscope_heap_pins {
    uint8_t *pages; /* flags of enum memscope_page_pins, one byte per listed page; in the listing's scratch */
    struct memscope_resizes resizes[MEMSCOPE_SLOT_SIZES];
    size_t slot_sizes;   /* entries in resizes, ascending by slot_bytes */
    const char *refusal; /* why pins are not known; NULL when they are */
};

/* Called when the extension is loaded: learns this Ruby's Hash layout. */
void memscope_heap_pins_learn(void);

/*
 * Reads the flags of every live object, and asks those that pin others for their references: 9 to 16 ms per million
 * objects. Caller holds the GVL; creates no objects. Runs the mark functions of C extensions, as any garbage collection
 * does, so no sweep may be in progress; refuses while other Ractors are alive.
 */
void memscope_heap_find_pins(struct memscope_heap_listing *listing, struct memscope_heap_pins *pins);

#endif
