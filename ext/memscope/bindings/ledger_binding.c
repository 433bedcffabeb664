/*
 * Memscope::Native.ledger and .mappings: list Ruby's heap pages under the GVL, let the engine read without it, and turn
 * its struct into the body of a Ledger or of Mappings. No Ruby object is made before the last number is read.
 */
#include "bindings/ledger_binding.h"

#include "bindings/without_children.h"

#include "init.h"
#include "ruby/ractors.h"

bool memscope_ledger_scan(void *argument) {
    struct memscope_ledger_call *call = argument;
    const struct memscope_ledger *ledger = &call->ledger;

    memscope_ledger_close(&call->ledger);
    call->status = memscope_ledger_read(&call->request, &call->ledger);
    return ledger->shared_status == MEMSCOPE_SHARED || ledger->trim_shared_status == MEMSCOPE_SHARED;
}

static bool walks(const struct memscope_ledger_call *call) {
    return call->objects && !call->walked_before && !call->other_ractors;
}

static void walk_objects(struct memscope_ledger_call *call) {
    struct memscope_heap_walk walk;

    memscope_heap_walk(&call->listing, &call->listing.scratch, MEMSCOPE_WALK_HELD, &walk);
    call->held = walk.held;
}

static void ask(struct memscope_ledger_call *call, bool jit) {
    memscope_ruby_layout(&call->listing, jit, &call->layout);
    memscope_images_read(&call->listing.scratch, &call->images);
    call->request.malloc = memscope_allocator_current()->name;
    call->request.ruby = &call->layout;
    call->request.images = &call->images;
}

void memscope_ledger_perform(struct memscope_ledger_call *call, bool (*scan)(void *argument), void *argument,
                             bool alone) {
    uint64_t start = memscope_now_ns(), without_gvl_ns = 0;
    bool jit = memscope_jit_is_on();

    call->other_ractors = memscope_other_ractors();
    if (walks(call))
        call->finished_gc = memscope_heap_finish_gc(); /* so that no dsize function of unswept garbage is called */
    memscope_heap_list(&call->listing, MEMSCOPE_SLOTS_COUNTED);
    if (walks(call) && call->listing.refusal == NULL)
        walk_objects(call);
    ask(call, jit);
    if (call->strict)
        scan(argument);
    else
        without_gvl_ns = memscope_without_children(scan, argument, alone);
    call->wall_ns = memscope_now_ns() - start;
    call->gvl_ns = call->wall_ns - without_gvl_ns;
}

static struct memscope_text source_text(enum memscope_residency_source source) {
    static const char *const names[] = {
        [MEMSCOPE_RESIDENCY_NONE] = "none",
        [MEMSCOPE_RESIDENCY_SMAPS] = "smaps",
        [MEMSCOPE_RESIDENCY_PAGEMAP] = "pagemap",
        [MEMSCOPE_RESIDENCY_PAGEMAP_SCAN] = "pagemap_scan",
    };

    return memscope_text_of(names[source]);
}

static VALUE finish(VALUE hash, const struct memscope_ledger_call *call) {
    size_t scratch_bytes = call->ledger.scratch_bytes + call->listing.scratch.used;

    return memscope_hash_add(hash, {"reasons", memscope_ledger_reasons(call)},
                             {"cost", memscope_cost("T2", call->wall_ns, call->gvl_ns, scratch_bytes)});
}

VALUE memscope_ledger_body(const struct memscope_ledger_call *call) {
    const struct memscope_ledger *ledger = &call->ledger;
    bool read = call->status == MEMSCOPE_OK;
    struct memscope_ledger_figures figures = memscope_ledger_figures_unknown;
    VALUE hash;

    figures.source = source_text(read ? ledger->residency.source : MEMSCOPE_RESIDENCY_NONE);
    if (read) {
        figures.rss_bytes = ledger->residency.resident_bytes;
        figures.mappings = ledger->mappings.count;
    }
    if (read && ledger->statm_status == MEMSCOPE_OK) {
        figures.statm_before_bytes = ledger->statm_before.resident_bytes;
        figures.statm_after_bytes = ledger->statm_after.resident_bytes;
    }
    if (call->held.known)
        figures.held_by_objects_bytes = call->held.bytes;
    hash = memscope_ledger_figures_hash(&figures);
    memscope_hash_set(hash, "rows", read ? memscope_ledger_rows(call, MEMSCOPE_ROW_top) : rb_ary_new());
    return finish(hash, call);
}

static VALUE mappings_body(const struct memscope_ledger_call *call) {
    bool read = call->status == MEMSCOPE_OK;
    const struct memscope_mappings_figures figures = {
        .rss_bytes = read ? call->ledger.residency.resident_bytes : MEMSCOPE_UNKNOWN,
        .source = source_text(read ? call->ledger.residency.source : MEMSCOPE_RESIDENCY_NONE),
        .unmapped_bytes = read ? call->ledger.unmapped_bytes : MEMSCOPE_UNKNOWN};
    VALUE hash = memscope_mappings_figures_hash(&figures);

    memscope_hash_set(hash, "mappings", read ? memscope_ledger_mappings(&call->ledger) : rb_ary_new());
    return finish(hash, call);
}

static VALUE read_ledger(VALUE argument) {
    struct memscope_ledger_call *call = (struct memscope_ledger_call *)argument;

    memscope_ledger_perform(call, memscope_ledger_scan, call, call->request.shared || call->request.deep);
    return call->body(call);
}

static VALUE close_ledger(VALUE argument) {
    struct memscope_ledger_call *call = (struct memscope_ledger_call *)argument;

    memscope_heap_listing_close(&call->listing);
    memscope_ledger_close(&call->ledger);
    return Qnil;
}

/*
 * strict keeps the GVL throughout, so that no other Ruby thread changes anything. Unless strict, an interrupt that
 * arrives while the engine reads is raised afterwards: rb_ensure frees the scratch memory.
 */
VALUE native_ledger(VALUE self, VALUE deep, VALUE shared, VALUE objects, VALUE strict) {
    struct memscope_ledger_call call = {.strict = RTEST(strict),
                                        .objects = RTEST(objects),
                                        .request = {.deep = RTEST(deep), .shared = RTEST(shared)},
                                        .body = memscope_ledger_body};

    return rb_ensure(read_ledger, (VALUE)&call, close_ledger, (VALUE)&call);
}

VALUE native_mappings(VALUE self) {
    struct memscope_ledger_call call = {.body = mappings_body};

    return rb_ensure(read_ledger, (VALUE)&call, close_ledger, (VALUE)&call);
}

/* For readings in the background: where listing the heap's pages would finish a GC in progress, waits for its end. */
VALUE native_await_gc(VALUE self) {
    if (MEMSCOPE_LISTING_FINISHES_GC)
        memscope_heap_await_gc();
    return Qnil;
}

void Init_memscope_ledger(void) {
    if (memscope_allocator_current()->name == MEMSCOPE_ALLOCATOR_GLIBC)
        memscope_glibc_learn_cache_key();
}
