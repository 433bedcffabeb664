#include "bindings/heap_call.h"

#include "init.h"
#include "ruby/heap/census.h"

#define DEADLINE_MS 10000

/* First as measured on an idle machine, then by the last census. */
static memscope_slot_rate ns_of_1000_slots = 12000;

struct census_scan {
    struct memscope_heap_call call;
    struct memscope_census_excluded excluded;
    struct memscope_shared_room room;
    struct memscope_census census;
    bool collect; /* run a full GC first */
    size_t gc_count;
    VALUE refusal; /* the reason why there is no census, or nil */
};

/* ---- the census ------------------------------------------------------------------------------------------------ */

static void take_census(void *argument, struct memscope_scratch *scratch) {
    struct census_scan *scan = argument;

    memscope_census_take(&scan->call.listing, &scan->excluded, scratch, &scan->room, &scan->census);
}

/* Once no sweep is under way, no object refers to a class that was freed. */
static VALUE take(struct census_scan *scan) {
    const struct memscope_heap_errand errand = {take_census, scan,        &scan->census, sizeof scan->census,
                                                -1,          DEADLINE_MS, NULL};
    VALUE refusal;

    if (memscope_shared_room_open(&scan->room) != MEMSCOPE_OK)
        return memscope_reason("no_memory");
    memscope_heap_call_settle(&scan->call, scan->collect);
    if (!NIL_P(refusal = memscope_heap_call_list(&scan->call, "census_beside_ractors")))
        return refusal;
    scan->gc_count = rb_gc_count();
    if (!NIL_P(refusal = memscope_heap_call_ask(&scan->call, &errand)))
        return memscope_reason_of("census_left_out", ULL2NUM((scan->call.work_ns + 999999) / 1000000), refusal);
    if (scan->census.refusal != NULL)
        return memscope_reason(scan->census.refusal);
    memscope_slot_rate_learn(&ns_of_1000_slots, scan->call.listing.slots, scan->census.spent_ns);
    return Qnil;
}

/* ---- the reading ----------------------------------------------------------------------------------------------- */

static VALUE row_hash(const struct memscope_census *census, const struct memscope_census_row *row) {
    struct memscope_census_sums sums = row->census_sums;

    if (sums.unsized_count == 0)
        sums.unsized_count = MEMSCOPE_UNKNOWN;
    return memscope_census_sums_named_hash(&sums, &census->names);
}

static void set_rows(VALUE hash, const struct census_scan *scan) {
    static const char *const keys[MEMSCOPE_CENSUS_GROUPINGS] = {
        [MEMSCOPE_BY_CLASS] = "classes",        [MEMSCOPE_BY_TYPE] = "types", [MEMSCOPE_BY_IMEMO] = "imemos",
        [MEMSCOPE_BY_SLOT_SIZE] = "slot_sizes", [MEMSCOPE_BY_AGE] = "ages",
    };
    VALUE lists[MEMSCOPE_CENSUS_GROUPINGS];

    for (int grouping = 0; grouping < MEMSCOPE_CENSUS_GROUPINGS; grouping++)
        memscope_hash_set(hash, keys[grouping], lists[grouping] = rb_ary_new());
    for (size_t index = 0; NIL_P(scan->refusal) && index < scan->census.row_count; index++) {
        const struct memscope_census_row *row = &scan->census.rows[index];

        rb_ary_push(lists[row->grouping], row_hash(&scan->census, row));
    }
}

static VALUE figures_hash(const struct census_scan *scan) {
    const struct memscope_census_sums *total = &scan->census.total;
    struct memscope_census_figures figures = memscope_census_figures_unknown;

    if (NIL_P(scan->refusal)) {
        figures.total_count = total->count;
        figures.total_slot_bytes = total->slot_bytes;
        figures.total_memsize_bytes = total->memsize_bytes;
        figures.total_old_count = total->old_count;
        figures.gc_count = scan->gc_count;
        figures.walked_in = memscope_text_of(scan->call.in_child ? "child" : "process");
    }
    figures.collected = scan->collect;
    if (scan->call.in_child)
        figures.pause_us = scan->call.child.pause_ns / 1000;
    return memscope_census_figures_hash(&figures);
}

static VALUE reasons_hash(const struct census_scan *scan) {
    VALUE reasons = rb_hash_new();

    if (!NIL_P(scan->refusal))
        memscope_hash_set(reasons, "total_count", scan->refusal);
    else
        memscope_set_unasked_reason(reasons, "memsize_bytes", &scan->census.held);
    if (scan->call.finished_gc)
        memscope_set_reason(reasons, "gc_count", "gc_finished");
    return reasons;
}

static VALUE read_census(VALUE argument) {
    struct census_scan *scan = (struct census_scan *)argument;
    VALUE hash;

    memscope_heap_call_begin(&scan->call);
    if (NIL_P(scan->refusal))
        scan->refusal = take(scan);
    hash = figures_hash(scan);
    set_rows(hash, scan);
    return memscope_heap_call_finish(&scan->call, hash, reasons_hash(scan), "T3",
                                     scan->room.used + (scan->call.in_child ? scan->census.scratch_bytes : 0));
}

static VALUE close_census(VALUE argument) {
    struct census_scan *scan = (struct census_scan *)argument;

    memscope_heap_call_end((VALUE)&scan->call);
    memscope_shared_room_close(&scan->room);
    return Qnil;
}

/*
 * budget_us: nil takes the census in the process, 0 in a child. Otherwise the census is taken in the process if it is
 * predicted to hold the GVL for no longer than budget_us, or for no longer than a fork would. excluded: nil, ranges
 * whose objects are not counted, or the reason why they are unknown (Native.inherited).
 */
VALUE native_census(VALUE self, VALUE collect, VALUE budget_us, VALUE excluded) {
    struct census_scan scan = {.call = {.bounded = !NIL_P(budget_us),
                                        .budget_ns = NIL_P(budget_us) ? 0 : NUM2ULL(budget_us) * 1000,
                                        .rate = &ns_of_1000_slots},
                               .collect = RTEST(collect),
                               .refusal = Qnil};
    VALUE hash;

    if (RB_TYPE_P(excluded, T_STRING)) {
        scan.excluded.ranges = (const void *)RSTRING_PTR(excluded);
        scan.excluded.count = (size_t)RSTRING_LEN(excluded) / sizeof *scan.excluded.ranges;
    } else {
        scan.refusal = excluded;
    }
    hash = rb_ensure(read_census, (VALUE)&scan, close_census, (VALUE)&scan);
    RB_GC_GUARD(excluded);
    return hash;
}
