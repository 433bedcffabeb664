/*
 * Ruby's heap pages and slots, listed from the object space. VALUEs are allowed here, malloc statistics are not.
 */
#pragma once

#include "base/scratch.h"
#include "ledger/ruby_regions.h"

enum memscope_slot_counts {
    MEMSCOPE_SLOTS_COUNTED,   /* from the page headers if they are proved right, else slot by slot */
    MEMSCOPE_SLOTS_UNCOUNTED, /* memscope_heap_walk counts them (ruby/heap/heap_walk.h) */
};

/* Called when the extension is loaded, before anything below: learns this Ruby's constants. */
void memscope_ruby_heap_learn(void);

struct memscope_heap_listing {
    struct memscope_scratch scratch;
    struct memscope_heap_page *pages;
    size_t count;
    uint64_t slots;           /* in all pages */
    size_t page_bytes;        /* size of a heap page, 0 after a refusal */
    size_t empty_pages;       /* as GC.stat counts them */
    size_t allocatable_pages; /* pages that Ruby may add before its next GC, 0 from 3.4 on, which do not report them */
    size_t allocated_pages;   /* as GC.stat counts them: with and without objects */
    bool finished_gc;         /* listing ended a GC that was under way */
    bool unswept;             /* a sweep is under way, and has not reached all garbage */
    const char *refusal;      /* the reason for no pages, NULL if there are pages */
};

/*
 * Lists the pages, and counts the live slots of each if wanted. Caller holds the GVL. Creates no objects, but
 * each_objects takes a little malloc memory while it runs. Takes 0.05 to 1.3 µs per page when it reads headers, 4 to 20
 * ns per slot when it walks slots. The listing must be closed afterwards, even after a refusal.
 */
void memscope_heap_list(struct memscope_heap_listing *listing, enum memscope_slot_counts wanted);
void memscope_heap_listing_close(struct memscope_heap_listing *listing);

/* Live and free slots by GC.stat. Caller holds the GVL. */
uint64_t memscope_heap_slots(void);

/* Returns true if GC.stat of this Ruby counts pages without objects. Otherwise, listing->empty_pages is 0. */
bool memscope_counts_empty_pages(void);

/*
 * Waits without the GVL until no garbage collection is in progress: up to two seconds while other threads allocate and
 * so advance the collection, otherwise 20 ms, and never in a copy (base/copy.h). Caller holds the GVL, and may be
 * interrupted. Returns the nanoseconds that the wait took.
 */
uint64_t memscope_heap_await_gc(void);

/*
 * Ends an incremental mark or lazy sweep in progress, as the next allocations would (26 to 43 ms at 1.5 M objects), so
 * that every slot is live or free. Returns true if it ended one. Caller holds the GVL.
 */
bool memscope_heap_finish_gc(void);

/* Returns true if GC.disable was called. Caller holds the GVL, without other Ractors. */
bool memscope_heap_gc_is_disabled(void);

/*
 * GC.start, even while the GC is disabled. Afterwards no collection is in progress, and no other thread has allocated
 * since the last collection. In a copy (base/copy.h), no finalizer runs. Caller holds the GVL.
 */
void memscope_heap_collect(void);

/* Calls a Ruby method, and other threads may run: call it before the heap is listed. Caller holds the GVL. */
bool memscope_jit_is_on(void);

/* Objects that this process has allocated and, since 3.4, those that compaction moved. Caller holds the GVL. */
uint64_t memscope_objects_allocated(void);

/* This Ruby's layout for the engine. heap_pages belong to the listing. Caller holds the GVL. Creates no objects. */
void memscope_ruby_layout(const struct memscope_heap_listing *listing, bool jit, struct memscope_ruby_layout *layout);
