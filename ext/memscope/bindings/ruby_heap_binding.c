#include "bindings/ruby_heap_binding.h"

#include "bindings/child_wait.h"
#include "bindings/held_memory_reason.h"

#include "init.h"
#include "ruby/gc_pause.h"
#include "ruby/heap/heap_walk.h"
#include "ruby/heap/page_rule.h"
#include "ruby/heap/pin_survey.h"
#include "ruby/ractors.h"
#include "ruby/ruby_private.h"

#include <string.h>

static VALUE symbol_old_objects, symbol_allocatable_pages;

/* Where the slots were walked. FROM_HEADERS: nowhere; the numbers of live slots are from the page headers. */
enum walked_in { IN_PROCESS, IN_CHILD, FROM_HEADERS };

/* Why the slots were not walked. */
enum left_out { NOT_LEFT_OUT, BESIDE_RACTORS, WITHOUT_ROOM, CHILD_REFUSED, CHILD_ENDED, CHILD_TOO_SLOW };

struct heap_scan {
    struct memscope_heap_listing listing;
    struct memscope_walk_child child;
    struct memscope_heap_walk walk;
    enum walked_in walked_in;
    bool collect; /* run a full GC first */
    bool bounded; /* a walk predicted to take longer than budget_ns, and longer than a fork, runs in a child */
    bool other_ractors;
    bool finished_gc;
    unsigned subjects;
    uint64_t budget_ns, walk_ns, fork_ns; /* walk_ns and fork_ns are predictions */
    struct memscope_fork_room room;
    enum left_out left_out;
    enum memscope_status fork_status;
    uint64_t start_ns, without_gvl_ns;
};

/* ---- the walk -------------------------------------------------------------------------------------------------- */

static void list_pages(struct heap_scan *scan, enum memscope_slot_counts counts) {
    memscope_heap_listing_close(&scan->listing);
    memscope_heap_list(&scan->listing, counts);
}

/* Takes what is known without a walk. */
static void take_headers(struct heap_scan *scan, enum left_out why) {
    static const struct memscope_heap_pins unknown;

    list_pages(scan, MEMSCOPE_SLOTS_FROM_HEADERS);
    memset(&scan->walk, 0, sizeof scan->walk);
    memscope_slot_sizes_sum(scan->listing.pages, scan->listing.count, &unknown, false, &scan->walk.sizes);
    scan->left_out = why;
    scan->walked_in = FROM_HEADERS;
}

static void walk_in_child(struct heap_scan *scan) {
    enum memscope_forked_progress progress;

    if (!NIL_P(memscope_reason_without_room(&scan->room))) {
        take_headers(scan, WITHOUT_ROOM);
        return;
    }
    scan->child.listing = &scan->listing;
    scan->child.subjects = scan->subjects;
    scan->fork_status = memscope_walk_child_start(&scan->child);
    if (scan->fork_status != MEMSCOPE_OK) {
        take_headers(scan, CHILD_REFUSED);
        return;
    }
    progress =
        memscope_child_wait(&scan->child.process, &scan->child.found, sizeof scan->child.found, &scan->without_gvl_ns);
    memscope_walk_child_end(&scan->child);
    if (progress != MEMSCOPE_FORKED_ANSWERED) {
        take_headers(scan, progress == MEMSCOPE_FORKED_TOO_SLOW ? CHILD_TOO_SLOW : CHILD_ENDED);
        return;
    }
    scan->walk = scan->child.found;
    memscope_heap_walk_took(&scan->walk, scan->subjects);
    scan->walked_in = IN_CHILD;
}

static void read_room(void *argument) {
    struct heap_scan *scan = argument;

    memscope_fork_room_read(scan->walk_ns, &scan->room);
    scan->fork_ns = memscope_fork_predicted_ns();
}

/* Releases the GVL, so it must come before the heap is listed; therefore the number of slots is GC.stat's. */
static void predict(struct heap_scan *scan) {
    scan->walk_ns = memscope_heap_walk_predicted_ns(memscope_heap_slots(), scan->subjects);
    if (scan->walk_ns <= scan->budget_ns)
        return;
    scan->without_gvl_ns += memscope_without_gvl(read_room, scan);
}

static bool belongs_in_child(const struct heap_scan *scan) {
    return scan->bounded && memscope_fork_pays(scan->walk_ns, scan->budget_ns, scan->fork_ns);
}

static void walk(struct heap_scan *scan) {
    if (scan->other_ractors) {
        take_headers(scan, BESIDE_RACTORS);
        return;
    }
    list_pages(scan, MEMSCOPE_SLOTS_UNCOUNTED);
    if (scan->listing.refusal != NULL)
        return;
    if (belongs_in_child(scan)) {
        walk_in_child(scan);
        return;
    }
    memscope_heap_walk(&scan->listing, &scan->listing.scratch, scan->subjects, &scan->walk);
}

static void collect_or_finish(struct heap_scan *scan) {
    if (scan->collect) {
        memscope_heap_collect();
        return;
    }
    if (MEMSCOPE_WALKS_DURING_GC && belongs_in_child(scan))
        return;
    if (scan->bounded)
        scan->without_gvl_ns += memscope_heap_await_gc();
    scan->finished_gc = memscope_heap_finish_gc();
}

/* ---- the reading ---------------------------------------------------------------------------------------------- */

static VALUE tenths_array(const struct memscope_slot_size *size) {
    VALUE array = rb_ary_new_capa(MEMSCOPE_TENTHS);

    for (size_t tenth = 0; tenth < MEMSCOPE_TENTHS; tenth++)
        rb_ary_push(array, SIZET2NUM(size->tenths[tenth]));
    return array;
}

static void set_sums(VALUE hash, const struct memscope_slot_size *size, const struct heap_scan *scan) {
    bool pins = scan->walked_in != FROM_HEADERS && scan->walk.pins_refusal == NULL;
    size_t page_bytes = scan->listing.page_bytes;

    memscope_hash_set(hash, "pages", SIZET2NUM(size->pages));
    memscope_hash_set(hash, "hidden_empty_pages", SIZET2NUM(size->hidden_empty_pages));
    memscope_hash_set(hash, "pinned_pages_min", pins ? SIZET2NUM(size->pinned_pages_min) : Qnil);
    memscope_hash_set(hash, "pinned_pages_max", pins ? SIZET2NUM(size->pinned_pages_max) : Qnil);
    memscope_hash_set(hash, "slots", SIZET2NUM(size->slots));
    memscope_hash_set(hash, "live_slots", SIZET2NUM(size->live_slots));
    memscope_hash_set(hash, "free_slots", SIZET2NUM(size->slots - size->live_slots));
    memscope_hash_set(hash, "pages_by_tenths", tenths_array(size));
    memscope_hash_set(hash, "compactable_min_bytes",
                      pins ? SIZET2NUM((size->pages - size->most_pages) * page_bytes) : Qnil);
    memscope_hash_set(hash, "compactable_bytes", SIZET2NUM((size->pages - size->fewest_pages) * page_bytes));
}

static void set_heap(VALUE hash, const struct heap_scan *scan) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < scan->walk.sizes.count; index++) {
        const struct memscope_slot_size *size = &scan->walk.sizes.list[index];
        VALUE item = rb_hash_new();

        memscope_hash_set(item, "slot_size", SIZET2NUM(size->resizes.slot_bytes));
        set_sums(item, size, scan);
        rb_ary_push(list, item);
    }
    memscope_hash_set(hash, "slot_sizes", list);
    if (scan->listing.refusal == NULL)
        set_sums(hash, &scan->walk.sizes.total, scan);
}

/* Ruby's own counts, and the inputs of its rule for freeing pages. */
static void set_collector(VALUE hash, const struct heap_scan *scan, VALUE gc_state) {
    const struct memscope_heap_listing *listing = &scan->listing;
    size_t floor = memscope_page_rule()->free_slots_floor;

    memscope_hash_set(hash, "page_bytes", SIZET2NUM(listing->page_bytes));
    memscope_hash_set(hash, "empty_pages",
                      memscope_counts_empty_pages() && listing->refusal == NULL ? SIZET2NUM(listing->empty_pages)
                                                                                : Qnil);
    memscope_hash_set(hash, "allocatable_pages",
                      NIL_P(symbol_allocatable_pages) ? Qnil : SIZET2NUM(rb_gc_stat(symbol_allocatable_pages)));
    memscope_hash_set(hash, "old_objects", SIZET2NUM(memscope_gc_figure(symbol_old_objects)));
    memscope_hash_set(hash, "free_slots_max_ratio", DBL2NUM(memscope_page_rule()->free_slots_max_ratio));
    memscope_hash_set(hash, "free_slots_floor", floor > 0 ? SIZET2NUM(floor) : Qnil);
    memscope_hash_set(hash, "collected", scan->collect ? Qtrue : Qfalse);
    memscope_hash_set(hash, "gc_state", rb_sym2str(gc_state));
    if (!memscope_other_ractors())
        memscope_hash_set(hash, "gc_disabled", memscope_heap_gc_is_disabled() ? Qtrue : Qfalse);
}

static VALUE milliseconds(uint64_t ns) {
    return ULL2NUM((ns + 999999) / 1000000);
}

static VALUE why_no_child(const struct heap_scan *scan) {
    switch (scan->left_out) {
    case WITHOUT_ROOM:
        return memscope_reason_without_room(&scan->room);
    case CHILD_REFUSED:
        return memscope_reason_child_refused(scan->fork_status);
    case CHILD_TOO_SLOW:
        return memscope_reason("child_too_slow");
    default:
        return memscope_reason("child_ended");
    }
}

/* Reasons for pins and held memory, neither of which is known without a walk. */
static void add_walk_reasons(VALUE reasons, const struct heap_scan *scan) {
    bool held = (scan->subjects & MEMSCOPE_WALK_HELD) != 0;
    VALUE why;

    if (scan->walked_in != FROM_HEADERS) {
        if (scan->walk.pins_refusal != NULL)
            memscope_set_reason(reasons, "pinned_pages_max", scan->walk.pins_refusal);
        memscope_set_left_out_reason(reasons, &scan->walk.held);
        return;
    }
    why = scan->left_out == BESIDE_RACTORS
              ? memscope_reason("references_unreadable")
              : memscope_reason_of("walk_left_out", milliseconds(scan->walk_ns), why_no_child(scan));
    memscope_hash_set(reasons, "pinned_pages_max", why);
    if (held)
        memscope_hash_set(reasons, "held_by_objects_bytes",
                          scan->left_out == BESIDE_RACTORS ? memscope_reason("objects_unwalked") : why);
}

static VALUE reasons_hash(const struct heap_scan *scan) {
    VALUE reasons = rb_hash_new();

    if (scan->listing.refusal != NULL)
        memscope_set_reason(reasons, "pages", scan->listing.refusal);
    else
        add_walk_reasons(reasons, scan);
    if (scan->listing.refusal != NULL && (scan->subjects & MEMSCOPE_WALK_HELD))
        memscope_set_reason(reasons, "held_by_objects_bytes", "objects_unwalked");
    if (NIL_P(symbol_allocatable_pages))
        memscope_set_reason(reasons, "allocatable_pages", "allocatable_pages_absent");
    if (scan->finished_gc)
        memscope_set_reason(reasons, "gc_state", "gc_finished");
    if (scan->listing.refusal == NULL && scan->listing.unswept)
        memscope_set_reason(reasons, "live_slots", "gc_sweeping");
    return reasons;
}

static void set_walk(VALUE hash, const struct heap_scan *scan) {
    static const char *const places[] = {[IN_PROCESS] = "process", [IN_CHILD] = "child", [FROM_HEADERS] = "headers"};
    bool forked = scan->child.process.pause_ns > 0;

    memscope_hash_set(hash, "walked_in",
                      scan->listing.refusal == NULL ? memscope_symbol(places[scan->walked_in]) : Qnil);
    memscope_hash_set(hash, "predicted_pause_us", forked ? ULL2NUM(scan->fork_ns / 1000) : Qnil);
    memscope_hash_set(hash, "pause_us", forked ? ULL2NUM(scan->child.process.pause_ns / 1000) : Qnil);
    if (scan->subjects & MEMSCOPE_WALK_HELD)
        memscope_hash_set(hash, "held_by_objects_bytes", scan->walk.held.known ? ULL2NUM(scan->walk.held.bytes) : Qnil);
}

static VALUE heap_body(const struct heap_scan *scan, VALUE gc_state) {
    VALUE hash = rb_hash_new();

    set_heap(hash, scan);
    set_collector(hash, scan, gc_state);
    set_walk(hash, scan);
    memscope_hash_set(hash, "reasons", reasons_hash(scan));
    return hash;
}

VALUE memscope_heap_body(const struct memscope_walk_child *child, uint64_t fork_ns, bool finished_gc) {
    struct heap_scan scan = {.listing = *child->listing,
                             .child = *child,
                             .walk = child->found,
                             .walked_in = IN_CHILD,
                             .finished_gc = finished_gc,
                             .subjects = child->subjects,
                             .fork_ns = fork_ns};
    VALUE hash = heap_body(&scan, rb_gc_latest_gc_info(memscope_symbol("state")));

    memscope_heap_walk_took(&scan.walk, scan.subjects);
    memscope_hash_set(hash, "cost", memscope_cost("T2", scan.walk.spent_ns, 0, scan.walk.scratch_bytes));
    return hash;
}

static VALUE read_heap(VALUE argument) {
    struct heap_scan *scan = (struct heap_scan *)argument;
    VALUE hash, gc_state = rb_gc_latest_gc_info(memscope_symbol("state"));
    uint64_t wall_ns;

    scan->start_ns = memscope_now_ns();
    if (scan->bounded)
        predict(scan);
    collect_or_finish(scan);
    scan->other_ractors = memscope_other_ractors(); /* now: no other thread runs until the walk ends or forks */
    walk(scan);
    hash = heap_body(scan, gc_state);
    wall_ns = memscope_now_ns() - scan->start_ns;
    memscope_hash_set(
        hash, "cost",
        memscope_cost("T2", wall_ns, wall_ns - scan->without_gvl_ns,
                      scan->listing.scratch.used + (scan->walked_in == IN_CHILD ? scan->walk.scratch_bytes : 0)));
    return hash;
}

static VALUE close_heap(VALUE argument) {
    struct heap_scan *scan = (struct heap_scan *)argument;

    memscope_walk_child_end(&scan->child);
    memscope_heap_listing_close(&scan->listing);
    return Qnil;
}

/*
 * objects: also read what objects hold through malloc. budget_us: nil to always walk in the process; else a walk that
 * would hold the GVL for longer than budget_us runs in a forked child, if the fork holds the GVL for less time; 0
 * always walks in a child.
 */
static VALUE native_ruby_heap(VALUE self, VALUE collect, VALUE objects, VALUE budget_us) {
    struct heap_scan scan = {.collect = RTEST(collect),
                             .bounded = !NIL_P(budget_us),
                             .budget_ns = NIL_P(budget_us) ? 0 : NUM2ULL(budget_us) * 1000,
                             .subjects = MEMSCOPE_WALK_PINS | (RTEST(objects) ? MEMSCOPE_WALK_HELD : 0)};

    return rb_ensure(read_heap, (VALUE)&scan, close_heap, (VALUE)&scan);
}

/* Native.gc_pause_ms -> Float, for how long GC.start is predicted to stop Ruby. */
static VALUE native_gc_pause_ms(VALUE self) {
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
    rb_define_singleton_method(rb_mMemscopeNative, "ruby_heap", native_ruby_heap, 3);
    rb_define_singleton_method(rb_mMemscopeNative, "gc_pause_ms", native_gc_pause_ms, 0);
}
