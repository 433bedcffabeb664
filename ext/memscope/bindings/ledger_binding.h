/*
 * One call of Native.ledger or Native.mappings, shared by the files that make it: ledger_binding.c reads, and
 * ledger_rows_binding.c and ledger_reasons_binding.c turn the results into VALUEs. All of them run under the GVL,
 * except that the engine reads without it unless strict.
 */
#pragma once

#include "values.h"

#include "bindings/reasons.h"
#include "ledger/ledger_meaning.h"
#include "malloc/allocator.h"
#include "ruby/heap/heap_walk.h"

struct memscope_ledger_call {
    bool strict;
    bool objects;
    bool walked_before; /* objects' malloc memory is known from another reading */
    bool finished_gc;   /* this call ended a garbage collection */
    struct memscope_held_memory held;
    bool other_ractors; /* other Ractors are alive: they allocate and collect without this Ractor's GVL */
    struct memscope_heap_listing listing;
    struct memscope_ruby_layout layout;
    struct memscope_images images;
    struct memscope_ledger_request request;
    struct memscope_ledger ledger;
    enum memscope_status status;
    uint64_t wall_ns, gvl_ns;
    VALUE (*body)(const struct memscope_ledger_call *call); /* what the call returns */
};

/*
 * Reads the ledger of `call`, a struct memscope_ledger_call, replacing an earlier one. Returns true if a child of
 * memscope spoilt the figures of shared pages (memscope_without_children).
 */
bool memscope_ledger_scan(void *call);

/*
 * Lists the pages, completes *call's request, and calls `scan`, which calls memscope_ledger_scan: without the GVL
 * unless strict and, if `alone`, as memscope_without_children does.
 */
void memscope_ledger_perform(struct memscope_ledger_call *call, bool (*scan)(void *argument), void *argument,
                             bool alone);

/* The body of a Ledger, without its allocator. */
VALUE memscope_ledger_body(const struct memscope_ledger_call *call);

/* The rows of a Ledger below `parent`, in the form of Ledger#to_h. */
VALUE memscope_ledger_rows(const struct memscope_ledger_call *call, enum memscope_row parent);

/* The mappings of a Mappings, in the form of Mappings#to_h. */
VALUE memscope_ledger_mappings(const struct memscope_ledger *ledger);

/* The reasons why values are nil, missing or approximate. */
VALUE memscope_ledger_reasons(const struct memscope_ledger_call *call);
