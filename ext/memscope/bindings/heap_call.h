/*
 * The steps of a binding that reads all objects of the heap, in this process or in a forked child. Call them in the
 * order below, with the GVL. In a copy (base/copy.h), all of them work in the process.
 */
#pragma once

#include "bindings/reasons.h"

#include "fork/fork_cost.h"
#include "fork/forked_child.h"
#include "ruby/heap/ruby_heap.h"

struct memscope_heap_call {
    bool bounded;             /* works in a child where memscope_fork_pays, otherwise always here, as in a copy */
    uint64_t budget_ns;       /* of work in this process, if bounded, 0 for none */
    memscope_slot_rate *rate; /* nanoseconds of the work per thousand slots */
    uint64_t child_bytes;     /* the predicted memory of a child besides its copies of pages */

    uint64_t work_ns, fork_ns; /* as predicted */
    struct memscope_fork_room room;
    struct memscope_heap_listing listing;
    struct memscope_forked_child child;
    bool in_child;
    bool finished_gc; /* a garbage collection was under way, and was finished */
    uint64_t start_ns, without_gvl_ns;
};

/*
 * Begins, and predicts the work from GC.stat's number of slots: pages are not listed yet, so that the GVL may be
 * released while the room for a child is read.
 */
void memscope_heap_call_begin(struct memscope_heap_call *call);

/* The part of memscope_heap_call_begin that reads the room, for work_ns. `call` is a memscope_heap_call. No GVL. */
void memscope_heap_call_read_room(void *call);

bool memscope_heap_call_belongs_in_child(const struct memscope_heap_call *call);

/* The reason why there is no room for a child, or nil. */
VALUE memscope_heap_call_without_room(const struct memscope_heap_call *call);

/*
 * Ensures that no collection is under way: runs one if `collect`, else finishes one that has begun, after waiting for
 * it without the GVL if the call is bounded.
 */
void memscope_heap_call_settle(struct memscope_heap_call *call, bool collect);

/*
 * Lists the pages, once no collection is under way. Returns the reason if it could not, or nil. No other thread runs
 * from here until the GVL is released, and no garbage collection begins if nothing is allocated.
 */
VALUE memscope_heap_call_list(struct memscope_heap_call *call, const char *reason_beside_ractors);

struct memscope_heap_errand {
    void (*work)(void *argument, struct memscope_scratch *scratch); /* scratch: the child's own, or the listing's */
    void *argument;
    void *found; /* written by the work, and sent back to the same place here */
    size_t size;
    int file; /* a descriptor that stays open in the child, -1 if none */
    unsigned deadline_ms;
    void (*inherit)(void *argument, bool inherited); /* called before and after the fork, or NULL */
};

/*
 * Does the work where it belongs. Returns the reason if there is no answer, or nil. Keeps the GVL up to the fork, then
 * releases it until the answer is there. Raises an interrupt of this thread.
 */
VALUE memscope_heap_call_ask(struct memscope_heap_call *call, const struct memscope_heap_errand *errand);

/* As memscope_finish. scratch_bytes: besides those of the listing. */
VALUE memscope_heap_call_finish(const struct memscope_heap_call *call, VALUE reading, VALUE reasons, const char *tier,
                                size_t scratch_bytes);

/* Ends a child, and closes the listing of a struct memscope_heap_call: for rb_ensure. Idempotent. Returns nil. */
VALUE memscope_heap_call_end(VALUE call);
