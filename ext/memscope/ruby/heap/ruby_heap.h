/*
 * Ruby's heap pages and slots, listed from the object space. VALUEs are allowed here, malloc statistics are not.
 */
#ifndef MEMSCOPE_RUBY_HEAP_H
#define MEMSCOPE_RUBY_HEAP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/scratch.h"
#include "ledger/ruby_regions.h"

/* How the live slots of each page were counted. */
enum memscope_slot_counts {
    MEMSCOPE_SLOTS_FROM_HEADERS, /* from the page headers, which a sample of pages proved right */
    MEMSCOPE_SLOTS_WALKED,       /* slot by slot */
    MEMSCOPE_SLOTS_UNCOUNTED,    /* not at all: memscope_heap_walk counts them (ruby/heap/heap_walk.h) */
};

/* Called when the extension is loaded, before anything below: learns this Ruby's constants. */
void memscope_ruby_heap_learn(void);

struct memscope_heap_listing {
    struct memscope_scratch scratch;
    struct memscope_heap_page *pages;
    size_t count;
    uint64_t slots;           /* of all pages */
    size_t page_bytes;        /* size of a heap page; 0 after a refusal */
    size_t empty_pages;       /* as GC.stat counts them */
    size_t allocatable_pages; /* pages that Ruby may add before its next GC; 0 from 3.4 on: not reported */
    size_t allocated_pages;   /* as GC.stat counts them: with and without objects */
    enum memscope_slot_counts slot_counts;
    bool finished_gc;    /* listing ended a GC that was under way */
    bool unswept;        /* a sweep is under way: garbage that it has not reached counts as live */
    const char *refusal; /* why there are no pages; NULL when there are */
};

/*
 * Lists the pages and counts their live slots. Caller holds the GVL. Creates no objects, but each_objects takes a
 * little malloc memory while it runs. Takes 0.05 to 1.3 µs per page when it reads headers, 4 to 20 ns per slot when it
 * walks slots. The listing must be closed afterwards, even after a refusal.
 */
void memscope_heap_list(struct memscope_heap_listing *listing, enum memscope_slot_counts wanted);
void memscope_heap_listing_close(struct memscope_heap_listing *listing);

/* How many slots there are, live or free, by GC.stat. GVL held. */
uint64_t memscope_heap_slots(void);

/* Whether GC.stat of this Ruby counts pages without objects; listing->empty_pages is 0 otherwise. */
bool memscope_counts_empty_pages(void);

/*
 * Waits without the GVL until no garbage collection is in progress: up to two seconds while other threads allocate and
 * so advance the collection; otherwise 20 ms. Caller holds the GVL, and may be interrupted. Returns the nanoseconds
 * that the wait took.
 */
uint64_t memscope_heap_await_gc(void);

/*
 * Ends an incremental mark or lazy sweep in progress, as the next allocations would (26 to 43 ms at 1.5 M objects), so
 * that every slot is live or free. Returns whether it ended one. Caller holds the GVL.
 */
bool memscope_heap_finish_gc(void);

/* Whether GC.disable was called. To be called under the GVL, without other Ractors. */
bool memscope_heap_gc_is_disabled(void);

/*
 * GC.start, even while the GC is disabled; afterwards no collection is in progress, and no other thread has allocated
 * since the last collection. Caller holds the GVL.
 */
void memscope_heap_collect(void);

/* Asks Ruby by a method, after which another thread may have run: call it before the heap is listed. GVL held. */
bool memscope_jit_is_on(void);

/* Objects that this process has allocated. Since 3.4, GC.stat also counts those that compaction moved. GVL held. */
uint64_t memscope_objects_allocated(void);

/* The layout of this Ruby for the engine; heap_pages belong to the listing. GVL held, creates no objects. */
void memscope_ruby_layout(const struct memscope_heap_listing *listing, bool jit, struct memscope_ruby_layout *layout);

#endif
