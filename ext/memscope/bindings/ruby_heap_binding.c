#include "bindings/ruby_heap_binding.h"

#include "init.h"
#include "ruby/gc_pause.h"
#include "ruby/heap/page_rule.h"
#include "ruby/heap/pin_survey.h"
#include "ruby/ractors.h"
#include "ruby/ruby_private.h"

#include <string.h>

#define DEADLINE_MS 10000

static VALUE symbol_old_objects, symbol_allocatable_pages;

/* By subjects, PINS or both: at first as measured on an idle machine, then by the last walk. */
static memscope_slot_rate ns_of_1000_slots[] = {[MEMSCOPE_WALK_PINS] = 16000,
                                                [MEMSCOPE_WALK_PINS | MEMSCOPE_WALK_HELD] = 24000};

struct heap_scan {
    struct memscope_heap_call call;
    struct memscope_heap_walk walk;
    bool collect; /* run a full GC first */
    unsigned subjects;
    VALUE left_out; /* the reason for live slots from page headers, without a walk, else nil */
};

/* ---- the walk -------------------------------------------------------------------------------------------------- */

/* Reads the page headers, without a walk. */
static void take_headers(struct heap_scan *scan, VALUE why) {
    static const struct memscope_heap_pins unknown;
    struct memscope_heap_listing *listing = &scan->call.listing;

    memscope_heap_listing_close(listing);
    memscope_heap_list(listing, MEMSCOPE_SLOTS_COUNTED);
    memset(&scan->walk, 0, sizeof scan->walk);
    memscope_slot_sizes_sum(listing->pages, listing->count, &unknown, false, &scan->walk.sizes);
    scan->left_out = why;
}

static void walk_heap(void *argument, struct memscope_scratch *scratch) {
    struct heap_scan *scan = argument;

    memscope_heap_walk(&scan->call.listing, scratch, scan->subjects, &scan->walk);
}

static void walk(struct heap_scan *scan) {
    const struct memscope_heap_errand errand = {walk_heap, scan, &scan->walk, sizeof scan->walk, -1, DEADLINE_MS, NULL};
    VALUE why;

    if (scan->collect || !MEMSCOPE_WALKS_DURING_GC || !memscope_heap_call_belongs_in_child(&scan->call))
        memscope_heap_call_settle(&scan->call, scan->collect);
    if (memscope_other_ractors()) { /* now: no other thread runs until the walk ends or forks */
        take_headers(scan, memscope_reason("references_unreadable"));
        return;
    }
    memscope_heap_list(&scan->call.listing, MEMSCOPE_SLOTS_UNCOUNTED);
    if (scan->call.listing.refusal != NULL)
        return;
    why = memscope_heap_call_ask(&scan->call, &errand);
    if (NIL_P(why))
        memscope_slot_rate_learn(scan->call.rate, scan->call.listing.slots, scan->walk.spent_ns);
    else
        take_headers(scan, memscope_reason_of("walk_left_out", ULL2NUM((scan->call.work_ns + 999999) / 1000000), why));
}

/* ---- the reading ---------------------------------------------------------------------------------------------- */

static VALUE tenths_array(const struct memscope_slot_size *size) {
    VALUE array = rb_ary_new_capa(MEMSCOPE_TENTHS);

    for (size_t tenth = 0; tenth < MEMSCOPE_TENTHS; tenth++)
        rb_ary_push(array, SIZET2NUM(size->tenths[tenth]));
    return array;
}

static struct memscope_slot_sums sums_of(const struct memscope_slot_size *size, const struct heap_scan *scan) {
    size_t page_bytes = scan->call.listing.page_bytes;
    struct memscope_slot_sums sums = size->slot_sums;

    sums.free_slots = size->slots - size->live_slots;
    sums.compactable_min_bytes = (size->pages - size->most_pages) * page_bytes;
    sums.compactable_bytes = (size->pages - size->fewest_pages) * page_bytes;
    if (!NIL_P(scan->left_out) || scan->walk.pins_refusal != NULL)
        sums.pinned_pages_min = sums.pinned_pages_max = sums.compactable_min_bytes = MEMSCOPE_UNKNOWN;
    return sums;
}

static void set_sums(VALUE hash, const struct memscope_slot_size *size, const struct heap_scan *scan) {
    const struct memscope_slot_sums sums = sums_of(size, scan);

    memscope_set_members(hash, &memscope_slot_sums_record, &sums, NULL);
    memscope_hash_set(hash, "pages_by_tenths", tenths_array(size));
}

static void set_heap(VALUE hash, const struct heap_scan *scan) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < scan->walk.sizes.count; index++) {
        VALUE item = memscope_hash_of({"slot_size", SIZET2NUM(scan->walk.sizes.list[index].resizes.slot_bytes)});

        set_sums(item, &scan->walk.sizes.list[index], scan);
        rb_ary_push(list, item);
    }
    memscope_hash_set(hash, "slot_sizes", list);
    if (scan->call.listing.refusal == NULL)
        set_sums(hash, &scan->walk.sizes.total, scan);
}

/* Ruby's own counts, and the inputs of its rule for freeing pages. */
static void set_collector(struct memscope_heap_figures *figures, const struct heap_scan *scan) {
    const struct memscope_heap_listing *listing = &scan->call.listing;
    size_t floor = memscope_page_rule()->free_slots_floor;

    figures->page_bytes = listing->page_bytes;
    if (memscope_counts_empty_pages() && listing->refusal == NULL)
        figures->empty_pages = listing->empty_pages;
    if (!NIL_P(symbol_allocatable_pages))
        figures->allocatable_pages = rb_gc_stat(symbol_allocatable_pages);
    figures->old_objects = memscope_gc_figure(symbol_old_objects);
    figures->free_slots_max_ratio = memscope_page_rule()->free_slots_max_ratio;
    if (floor > 0)
        figures->free_slots_floor = floor;
    figures->collected = scan->collect;
    if (!memscope_other_ractors())
        figures->gc_disabled = memscope_heap_gc_is_disabled();
}

static void set_walk(struct memscope_heap_figures *figures, const struct heap_scan *scan) {
    const char *place = !NIL_P(scan->left_out) ? "headers" : scan->call.in_child ? "child" : "process";
    uint64_t pause_ns = scan->call.child.pause_ns;

    if (scan->call.listing.refusal == NULL)
        figures->walked_in = memscope_text_of(place);
    if (pause_ns > 0) {
        figures->predicted_pause_us = scan->call.fork_ns / 1000;
        figures->pause_us = pause_ns / 1000;
    }
    if ((scan->subjects & MEMSCOPE_WALK_HELD) && scan->walk.held.known)
        figures->held_by_objects_bytes = scan->walk.held.bytes;
}

/* Reasons for pins and malloc memory, both unknown without a walk. */
static void add_walk_reasons(VALUE reasons, const struct heap_scan *scan) {
    VALUE why = scan->left_out;

    if (NIL_P(why)) {
        if (scan->walk.pins_refusal != NULL)
            memscope_set_reason(reasons, "pinned_pages_max", scan->walk.pins_refusal);
        memscope_set_left_out_reason(reasons, &scan->walk.held);
        return;
    }
    memscope_hash_set(reasons, "pinned_pages_max", why);
    if (scan->subjects & MEMSCOPE_WALK_HELD)
        memscope_hash_set(reasons, "held_by_objects_bytes",
                          RB_SYMBOL_P(why) ? memscope_reason("objects_unwalked") : why); /* beside other Ractors */
}

static VALUE reasons_hash(const struct heap_scan *scan) {
    VALUE reasons = rb_hash_new();

    if (scan->call.listing.refusal != NULL)
        memscope_set_reason(reasons, "pages", scan->call.listing.refusal);
    else
        add_walk_reasons(reasons, scan);
    if (scan->call.listing.refusal != NULL && (scan->subjects & MEMSCOPE_WALK_HELD))
        memscope_set_reason(reasons, "held_by_objects_bytes", "objects_unwalked");
    if (NIL_P(symbol_allocatable_pages))
        memscope_set_reason(reasons, "allocatable_pages", "allocatable_pages_absent");
    if (scan->call.finished_gc)
        memscope_set_reason(reasons, "gc_state", "gc_finished");
    if (scan->call.listing.refusal == NULL && scan->call.listing.unswept)
        memscope_set_reason(reasons, "live_slots", "gc_sweeping");
    return reasons;
}

static VALUE heap_body(const struct heap_scan *scan, VALUE gc_state) {
    struct memscope_heap_figures figures = memscope_heap_figures_unknown;
    VALUE hash;

    set_collector(&figures, scan);
    set_walk(&figures, scan);
    hash = memscope_heap_figures_hash(&figures);
    set_heap(hash, scan);
    return memscope_hash_add(hash, {"gc_state", rb_sym2str(gc_state)});
}

VALUE memscope_heap_body(const struct memscope_heap_call *call, const struct memscope_heap_walk *walk) {
    struct heap_scan scan = {.call = *call, .walk = *walk, .subjects = MEMSCOPE_WALK_PINS, .left_out = Qnil};
    VALUE hash = heap_body(&scan, rb_gc_latest_gc_info(memscope_symbol("state")));

    memscope_slot_rate_learn(&ns_of_1000_slots[MEMSCOPE_WALK_PINS], call->listing.slots, walk->spent_ns);
    return memscope_hash_add(hash, {"reasons", reasons_hash(&scan)},
                             {"cost", memscope_cost("T2", scan.walk.spent_ns, 0, scan.walk.scratch_bytes)});
}

static VALUE read_heap(VALUE argument) {
    struct heap_scan *scan = (struct heap_scan *)argument;
    VALUE gc_state = rb_gc_latest_gc_info(memscope_symbol("state"));

    memscope_heap_call_begin(&scan->call);
    walk(scan);
    return memscope_heap_call_finish(&scan->call, heap_body(scan, gc_state), reasons_hash(scan), "T2",
                                     scan->call.in_child ? scan->walk.scratch_bytes : 0);
}

/*
 * objects: true also reads objects' malloc memory. budget_us: nil always walks in the process, and 0 always in a child.
 * Otherwise a walk that would hold the GVL for longer than budget_us runs in a forked child, if the fork holds the GVL
 * for less time.
 */
VALUE native_ruby_heap(VALUE self, VALUE collect, VALUE objects, VALUE budget_us) {
    unsigned subjects = MEMSCOPE_WALK_PINS | (RTEST(objects) ? MEMSCOPE_WALK_HELD : 0);
    struct heap_scan scan = {.call = {.bounded = !NIL_P(budget_us),
                                      .budget_ns = NIL_P(budget_us) ? 0 : NUM2ULL(budget_us) * 1000,
                                      .rate = &ns_of_1000_slots[subjects]},
                             .collect = RTEST(collect),
                             .subjects = subjects,
                             .left_out = Qnil};

    return rb_ensure(read_heap, (VALUE)&scan, memscope_heap_call_end, (VALUE)&scan.call);
}

/* Native.gc_pause_ms -> Float, the predicted pause of GC.start. */
VALUE native_gc_pause_ms(VALUE self) {
    return DBL2NUM((double)memscope_gc_predicted_ns() / 1e6);
}

void Init_memscope_ruby_heap(void) {
    VALUE stat = rb_hash_new();

    memscope_ruby_heap_learn();
    memscope_ractors_learn();
    memscope_held_memory_learn();
    memscope_pin_survey_learn();
    rb_gc_stat(stat);
    symbol_old_objects = memscope_gc_symbol(stat, "old_objects");
    symbol_allocatable_pages = memscope_gc_symbol(stat, "heap_allocatable_pages"); /* gone in 3.4 */
    memscope_page_rule_learn();
}
