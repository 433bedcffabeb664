/*
 * Memscope::Native.ledger and .mappings: list Ruby's heap pages under the GVL, let the engine read without it, and turn
 * its struct into the body of a Ledger or of Mappings. No Ruby object is made before the last number is read.
 */
#include "bindings/ledger_binding.h"

#include "init.h"

#include <ruby/thread.h>

/* ---- reading -------------------------------------------------------------------------------------------------- */

static enum memscope_ledger_malloc malloc_kind(void) {
    const struct memscope_allocator *allocator = memscope_allocator_current();

    if (allocator->proved && allocator->name == MEMSCOPE_ALLOCATOR_GLIBC)
        return MEMSCOPE_LEDGER_MALLOC_GLIBC;
    if (allocator->proved && allocator->name == MEMSCOPE_ALLOCATOR_JEMALLOC)
        return MEMSCOPE_LEDGER_MALLOC_JEMALLOC;
    return MEMSCOPE_LEDGER_MALLOC_OTHER;
}

static void *read_without_gvl(void *argument) {
    struct memscope_ledger_call *reading = argument;

    reading->status = memscope_ledger_read(&reading->request, &reading->ledger);
    return NULL;
}

static void take_reading(struct memscope_ledger_call *reading) {
    uint64_t start = memscope_now_ns();

    reading->other_ractors = memscope_other_ractors();
    if (reading->objects)
        memscope_heap_held_memory(&reading->held);
    memscope_heap_list(&reading->listing, MEMSCOPE_SLOTS_FROM_HEADERS);
    memscope_ruby_layout(&reading->listing, &reading->layout);
    memscope_images_read(&reading->listing.scratch, &reading->images);
    reading->request.malloc = malloc_kind();
    reading->request.ruby = &reading->layout;
    reading->request.images = &reading->images;
    reading->gvl_ns = memscope_now_ns() - start;
    if (reading->strict)
        read_without_gvl(reading);
    else
        rb_thread_call_without_gvl(read_without_gvl, reading, NULL, NULL);
    reading->wall_ns = memscope_now_ns() - start;
    if (reading->strict)
        reading->gvl_ns = reading->wall_ns;
}

/* ---- the body of a Ledger ------------------------------------------------------------------------------------- */

static VALUE source_symbol(enum memscope_residency_source source) {
    static const char *const names[] = {
        [MEMSCOPE_RESIDENCY_NONE] = "none",
        [MEMSCOPE_RESIDENCY_SMAPS] = "smaps",
        [MEMSCOPE_RESIDENCY_PAGEMAP] = "pagemap",
        [MEMSCOPE_RESIDENCY_PAGEMAP_SCAN] = "pagemap_scan",
    };

    return memscope_symbol(names[source]);
}

static VALUE cost_hash(const struct memscope_ledger_call *reading) {
    return memscope_cost("T2", reading->wall_ns, reading->gvl_ns,
                         reading->ledger.scratch_bytes + reading->listing.scratch.used);
}

static VALUE ledger_body(const struct memscope_ledger_call *reading) {
    const struct memscope_ledger *ledger = &reading->ledger;
    bool read = reading->status == MEMSCOPE_OK;
    bool statm = read && ledger->statm_status == MEMSCOPE_OK;
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "rss_bytes", read ? ULL2NUM(ledger->residency.resident_bytes) : Qnil);
    memscope_hash_set(hash, "source", source_symbol(read ? ledger->residency.source : MEMSCOPE_RESIDENCY_NONE));
    memscope_hash_set(hash, "statm_before_bytes", statm ? ULL2NUM(ledger->statm_before.resident_bytes) : Qnil);
    memscope_hash_set(hash, "statm_after_bytes", statm ? ULL2NUM(ledger->statm_after.resident_bytes) : Qnil);
    memscope_hash_set(hash, "held_by_objects_bytes", reading->held.known ? ULL2NUM(reading->held.bytes) : Qnil);
    memscope_hash_set(hash, "rows", read ? memscope_ledger_rows(reading) : rb_ary_new());
    memscope_hash_set(hash, "reasons", memscope_ledger_reasons(reading));
    memscope_hash_set(hash, "cost", cost_hash(reading));
    return hash;
}

/* ---- the body of Mappings --------------------------------------------------------------------------------------- */

static VALUE mappings_body(const struct memscope_ledger_call *reading) {
    bool read = reading->status == MEMSCOPE_OK;
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "rss_bytes", read ? ULL2NUM(reading->ledger.residency.resident_bytes) : Qnil);
    memscope_hash_set(hash, "source", source_symbol(read ? reading->ledger.residency.source : MEMSCOPE_RESIDENCY_NONE));
    memscope_hash_set(hash, "unmapped_bytes", read ? ULL2NUM(reading->ledger.unmapped_bytes) : Qnil);
    memscope_hash_set(hash, "mappings", read ? memscope_ledger_mappings(&reading->ledger) : rb_ary_new());
    memscope_hash_set(hash, "reasons", memscope_ledger_reasons(reading));
    memscope_hash_set(hash, "cost", cost_hash(reading));
    return hash;
}

static VALUE read_mappings(VALUE argument) {
    struct memscope_ledger_call *reading = (struct memscope_ledger_call *)argument;

    take_reading(reading);
    return mappings_body(reading);
}

static VALUE read_ledger(VALUE argument) {
    struct memscope_ledger_call *reading = (struct memscope_ledger_call *)argument;

    take_reading(reading);
    return ledger_body(reading);
}

static VALUE close_ledger(VALUE argument) {
    struct memscope_ledger_call *reading = (struct memscope_ledger_call *)argument;

    memscope_heap_listing_close(&reading->listing);
    memscope_ledger_close(&reading->ledger);
    return Qnil;
}

/*
 * strict: true keeps the GVL throughout, so that no Ruby thread moves anything meanwhile. Without it, an interrupt that
 * arrives while the engine reads is raised after it: rb_ensure gives the scratch memory back.
 */
static VALUE native_ledger(VALUE self, VALUE deep, VALUE shared, VALUE objects, VALUE strict) {
    struct memscope_ledger_call reading = {
        .strict = RTEST(strict), .objects = RTEST(objects), .request = {.deep = RTEST(deep), .shared = RTEST(shared)}};

    return rb_ensure(read_ledger, (VALUE)&reading, close_ledger, (VALUE)&reading);
}

static VALUE native_mappings(VALUE self) {
    struct memscope_ledger_call reading = {.strict = false};

    return rb_ensure(read_mappings, (VALUE)&reading, close_ledger, (VALUE)&reading);
}

void Init_memscope_ledger(void) {
    if (malloc_kind() == MEMSCOPE_LEDGER_MALLOC_GLIBC)
        memscope_glibc_learn_cache_key();
    rb_define_module_function(rb_mMemscopeNative, "ledger", native_ledger, 4);
    rb_define_module_function(rb_mMemscopeNative, "mappings", native_mappings, 0);
}
