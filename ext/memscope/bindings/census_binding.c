#include "bindings/child_wait.h"
#include "bindings/held_memory_reason.h"

#include "init.h"
#include "ruby/heap/census.h"
#include "ruby/ractors.h"
#include "ruby/ruby_private.h"

#include <string.h>

struct census_scan {
    struct memscope_heap_listing listing;
    struct memscope_census_excluded excluded;
    struct memscope_census_child child;
    struct memscope_census census;
    bool collect; /* run a full GC first */
    bool bounded; /* as in ruby_heap_binding.c */
    bool in_child, finished_gc;
    size_t gc_count;
    uint64_t budget_ns, census_ns, fork_ns; /* census_ns and fork_ns are predictions */
    struct memscope_fork_room room;
    VALUE refusal; /* the reason why there is no census; nil if there is one */
    uint64_t start_ns, without_gvl_ns;
};

/* ---- in a child ------------------------------------------------------------------------------------------------ */

static VALUE left_out(const struct census_scan *scan, VALUE why) {
    return memscope_reason_of("census_left_out", ULL2NUM((scan->census_ns + 999999) / 1000000), why);
}

static void take_in_child(struct census_scan *scan) {
    VALUE without_room = memscope_reason_without_room(&scan->room);
    enum memscope_status status;
    enum memscope_forked_progress progress;

    if (!NIL_P(without_room)) {
        scan->refusal = left_out(scan, without_room);
        return;
    }
    scan->child.listing = &scan->listing;
    scan->child.excluded = scan->excluded;
    status = memscope_census_child_start(&scan->child);
    if (status != MEMSCOPE_OK) {
        scan->refusal = left_out(scan, memscope_reason_child_refused(status));
        return;
    }
    scan->in_child = true;
    progress =
        memscope_child_wait(&scan->child.process, &scan->child.found, sizeof scan->child.found, &scan->without_gvl_ns);
    if (progress != MEMSCOPE_FORKED_ANSWERED) {
        scan->refusal = left_out(scan, memscope_reason_unanswered(progress));
        return;
    }
    scan->census = scan->child.found;
    memscope_census_took(&scan->census);
}

/* ---- the census ------------------------------------------------------------------------------------------------ */

static void read_room(void *argument) {
    struct census_scan *scan = argument;

    memscope_fork_room_read(scan->census_ns, &scan->room);
    scan->fork_ns = memscope_fork_predicted_ns();
}

/*
 * Predicts how long the census takes, from GC.stat's number of slots, since pages are listed only after the GVL has
 * been released. If that exceeds the budget, also predicts how long a fork takes.
 */
static void predict(struct census_scan *scan) {
    scan->census_ns = memscope_census_predicted_ns(memscope_heap_slots());
    if (scan->census_ns > scan->budget_ns)
        scan->without_gvl_ns += memscope_without_gvl(read_room, scan);
}

static bool belongs_in_child(const struct census_scan *scan) {
    return scan->bounded && memscope_fork_pays(scan->census_ns, scan->budget_ns, scan->fork_ns);
}

/* Once no sweep is under way, no object refers to a class that was freed. */
static void collect_or_finish(struct census_scan *scan) {
    if (scan->collect) {
        memscope_heap_collect();
        return;
    }
    if (scan->bounded)
        scan->without_gvl_ns += memscope_heap_await_gc();
    scan->finished_gc = memscope_heap_finish_gc();
}

/* No other thread runs from here until the objects are counted, or the child is forked. */
static void take(struct census_scan *scan) {
    if (memscope_other_ractors()) {
        scan->refusal = memscope_reason("census_beside_ractors");
        return;
    }
    memscope_heap_list(&scan->listing, MEMSCOPE_SLOTS_UNCOUNTED);
    if (scan->listing.refusal != NULL) {
        scan->refusal = memscope_reason(scan->listing.refusal);
        return;
    }
    scan->gc_count = rb_gc_count();
    if (belongs_in_child(scan))
        take_in_child(scan);
    else
        memscope_census_take(&scan->listing, &scan->excluded, &scan->listing.scratch, &scan->census);
    if (NIL_P(scan->refusal) && scan->census.refusal != NULL)
        scan->refusal = memscope_reason(scan->census.refusal);
}

/* ---- the reading ----------------------------------------------------------------------------------------------- */

static VALUE row_hash(const struct memscope_census *census, const struct memscope_census_row *row) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "name", rb_utf8_str_new(census->names + row->name, row->name_bytes));
    memscope_hash_set(hash, "count", ULL2NUM(row->sums.count));
    memscope_hash_set(hash, "slot_bytes", ULL2NUM(row->sums.slot_bytes));
    memscope_hash_set(hash, "memsize_bytes", ULL2NUM(row->sums.memsize_bytes));
    memscope_hash_set(hash, "old_count", ULL2NUM(row->sums.old_count));
    memscope_hash_set(hash, "unsized_count", row->sums.unsized_count == 0 ? Qnil : ULL2NUM(row->sums.unsized_count));
    return hash;
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

static void set_totals(VALUE hash, const struct census_scan *scan) {
    const struct memscope_census_sums *total = &scan->census.total;
    bool known = NIL_P(scan->refusal);

    memscope_hash_set(hash, "total_count", known ? ULL2NUM(total->count) : Qnil);
    memscope_hash_set(hash, "total_slot_bytes", known ? ULL2NUM(total->slot_bytes) : Qnil);
    memscope_hash_set(hash, "total_memsize_bytes", known ? ULL2NUM(total->memsize_bytes) : Qnil);
    memscope_hash_set(hash, "total_old_count", known ? ULL2NUM(total->old_count) : Qnil);
    memscope_hash_set(hash, "gc_count", known ? SIZET2NUM(scan->gc_count) : Qnil);
    memscope_hash_set(hash, "collected", scan->collect ? Qtrue : Qfalse);
}

static void set_walk(VALUE hash, const struct census_scan *scan) {
    bool known = NIL_P(scan->refusal);

    memscope_hash_set(hash, "walked_in", known ? memscope_symbol(scan->in_child ? "child" : "process") : Qnil);
    memscope_hash_set(hash, "pause_us", scan->in_child ? ULL2NUM(scan->child.process.pause_ns / 1000) : Qnil);
}

static VALUE reasons_hash(const struct census_scan *scan) {
    VALUE reasons = rb_hash_new();

    if (!NIL_P(scan->refusal))
        memscope_hash_set(reasons, "total_count", scan->refusal);
    else
        memscope_set_unasked_reason(reasons, "memsize_bytes", &scan->census.held);
    if (scan->finished_gc)
        memscope_set_reason(reasons, "gc_count", "gc_finished");
    return reasons;
}

static VALUE read_census(VALUE argument) {
    struct census_scan *scan = (struct census_scan *)argument;
    uint64_t wall_ns;
    VALUE hash;

    scan->start_ns = memscope_now_ns();
    if (scan->bounded)
        predict(scan);
    collect_or_finish(scan);
    if (NIL_P(scan->refusal))
        take(scan);
    hash = rb_hash_new();
    set_totals(hash, scan);
    set_rows(hash, scan);
    set_walk(hash, scan);
    memscope_hash_set(hash, "reasons", reasons_hash(scan));
    wall_ns = memscope_now_ns() - scan->start_ns;
    memscope_hash_set(hash, "cost",
                      memscope_cost("T3", wall_ns, wall_ns - scan->without_gvl_ns,
                                    scan->listing.scratch.used + (scan->in_child ? scan->census.scratch_bytes : 0)));
    return hash;
}

static VALUE close_census(VALUE argument) {
    struct census_scan *scan = (struct census_scan *)argument;

    memscope_census_child_end(&scan->child);
    memscope_heap_listing_close(&scan->listing);
    return Qnil;
}

/*
 * budget_us: if it is nil, the census is taken in the process; if it is 0, always in a child. Otherwise the census is
 * taken in the process if it is predicted to hold the GVL for no longer than budget_us, or for no longer than a fork
 * would. excluded: nil; ranges whose objects are not counted, or the reason why they are unknown (Native.inherited).
 */
static VALUE native_census(VALUE self, VALUE collect, VALUE budget_us, VALUE excluded) {
    struct census_scan scan = {.collect = RTEST(collect),
                               .bounded = !NIL_P(budget_us),
                               .budget_ns = NIL_P(budget_us) ? 0 : NUM2ULL(budget_us) * 1000,
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

void Init_memscope_census(void) {
    rb_define_singleton_method(rb_mMemscopeNative, "census", native_census, 3);
}
