/*
 * Native.snapshot(malloc): the totals that are cheap to read.
 *
 * All numbers are read into plain C before any Ruby object is made.
 */
#include "bindings/reasons.h"

#include "init.h"
#include "kernel/process.h"
#include "malloc/allocator.h"
#include "malloc/jemalloc.h"
#include "malloc/mallinfo.h"

/*
 * Hashes that GC.stat and GC.stat_heap fill, and each snapshot copies. They have all keys of this Ruby, so that filling
 * them creates no object.
 */
static VALUE gc_stat, heap_stat; /* heap_stat: a Hash for each heap, nil before Ruby 3.2 */
static ID id_stat_heap;

/* The keys under :jemalloc. */
#define STAT(field, key, type, unit, kind, since) #field,
static const char *const jemalloc_names[] = {
#include "malloc/jemalloc_stats.def"
};
static VALUE jemalloc_keys[MEMSCOPE_JEMALLOC_FIELD_COUNT];

struct readings {
    bool wants_malloc;
    enum memscope_status statm_status, jemalloc_status, glibc_status;
    struct memscope_statm statm;
    struct memscope_jemalloc_stats jemalloc;
    struct memscope_mallinfo glibc;
    uint64_t without_gvl_ns;
};

static bool is_allocator(enum memscope_allocator_name name) {
    return memscope_allocator_current()->name == name;
}

/* Both calls take the allocator's locks, so they run without the GVL. */
static void read_allocator(void *argument) {
    struct readings *readings = argument;

    if (is_allocator(MEMSCOPE_ALLOCATOR_JEMALLOC))
        readings->jemalloc_status = memscope_jemalloc_read_stats(&readings->jemalloc);
    else
        readings->glibc_status = memscope_mallinfo_read(&readings->glibc);
}

/*
 * Creates no Ruby object. All snapshots share the Hashes of the collector's numbers, so the GVL must not be released
 * between GC.stat and copying its Hash. Another thread's snapshot may fill those of the heaps meanwhile, with its own.
 */
static void read_all(struct readings *readings) {
    readings->statm_status = memscope_statm_read(&readings->statm);
    if (is_allocator(MEMSCOPE_ALLOCATOR_JEMALLOC) || (readings->wants_malloc && is_allocator(MEMSCOPE_ALLOCATOR_GLIBC)))
        readings->without_gvl_ns = memscope_without_gvl(read_allocator, readings);
    if (!NIL_P(heap_stat))
        rb_funcall(rb_mGC, id_stat_heap, 2, Qnil, heap_stat);
    rb_gc_stat(gc_stat); /* last: the call of a method may switch to another thread, which takes a snapshot too */
}

static VALUE figures_to_hash(const struct readings *readings) {
    const struct memscope_snapshot_figures figures = {.rss_bytes = readings->statm.resident_bytes,
                                                      .virtual_bytes = readings->statm.size_bytes,
                                                      .shared_bytes = readings->statm.shared_bytes};

    return memscope_snapshot_figures_hash(readings->statm_status == MEMSCOPE_OK ? &figures
                                                                                : &memscope_snapshot_figures_unknown);
}

static void set_statm_reasons(VALUE reasons, const struct readings *readings) {
    static const char *const names[] = {"rss_bytes", "virtual_bytes", "shared_bytes"};

    for (size_t index = 0; readings->statm_status != MEMSCOPE_OK && index < 3; index++)
        memscope_hash_set(reasons, names[index], memscope_unread("/proc/self/statm", readings->statm_status));
}

static int copy_heap(VALUE heap, VALUE stat, VALUE heaps) {
    rb_hash_aset(heaps, heap, rb_obj_freeze(rb_hash_dup(stat)));
    return ST_CONTINUE;
}

static VALUE copy_heaps(void) {
    VALUE heaps = rb_hash_new();

    if (NIL_P(heap_stat))
        return Qnil;
    rb_hash_foreach(heap_stat, copy_heap, heaps);
    return rb_obj_freeze(heaps);
}

/* The reason for keys that this jemalloc does not have, or for mixed epochs, or nil. */
static VALUE jemalloc_gaps(const struct memscope_jemalloc_stats *stats) {
    VALUE gaps = Qnil;

    if (stats->mixed_epochs)
        return memscope_reason("epochs_mixed");
    for (size_t field = 0; field < MEMSCOPE_JEMALLOC_FIELD_COUNT; field++) {
        if (memscope_jemalloc_has(stats, (enum memscope_jemalloc_field)field))
            continue;
        gaps = NIL_P(gaps) ? rb_ary_new() : gaps;
        rb_ary_push(gaps, rb_utf8_str_new_cstr(jemalloc_names[field]));
    }
    return NIL_P(gaps) ? Qnil : memscope_reason_of("jemalloc_lacks", gaps);
}

static VALUE jemalloc_to_hash(const struct memscope_jemalloc_stats *stats) {
#define STAT(field, key, type, unit, kind, since) stats->field,
    const uint64_t values[] = {
#include "malloc/jemalloc_stats.def"
    };
    VALUE pairs[2 * (MEMSCOPE_JEMALLOC_FIELD_COUNT + 2)], *next = pairs, hash = rb_hash_new();
    int64_t in_use = memscope_jemalloc_in_use(stats);

    for (size_t field = 0; field < MEMSCOPE_JEMALLOC_FIELD_COUNT; field++) {
        *next++ = jemalloc_keys[field];
        *next++ = memscope_jemalloc_has(stats, (enum memscope_jemalloc_field)field) ? ULL2NUM(values[field]) : Qnil;
    }
    *next++ = memscope_symbol("slab_slack_bytes");
    *next++ = stats->has_slab_slack ? ULL2NUM(stats->slab_slack_bytes) : Qnil;
    *next++ = memscope_symbol("in_use_bytes");
    *next++ = in_use >= 0 ? LL2NUM(in_use) : Qnil;
    rb_hash_bulk_insert(next - pairs, pairs, hash); /* at once: the Hash need not grow */
    return rb_obj_freeze(hash);
}

static bool jemalloc_is_read(const struct readings *readings) {
    return is_allocator(MEMSCOPE_ALLOCATOR_JEMALLOC) && readings->jemalloc_status == MEMSCOPE_OK;
}

/* Returns nil if nothing is missing. */
static VALUE jemalloc_reason(const struct readings *readings) {
    if (jemalloc_is_read(readings))
        return jemalloc_gaps(&readings->jemalloc);
    if (!is_allocator(MEMSCOPE_ALLOCATOR_JEMALLOC))
        return memscope_reason("jemalloc_not_serving");
    if (memscope_jemalloc_unsupported_reason())
        return memscope_reason(memscope_jemalloc_unsupported_reason());
    return memscope_unread("mallctl", readings->jemalloc_status);
}

static VALUE glibc_to_hash(const struct memscope_mallinfo *totals) {
    VALUE hash = rb_hash_new();

#define FIELD(name) memscope_hash_set(hash, #name, SIZET2NUM(totals->name));
    MEMSCOPE_MALLINFO_FIELDS(FIELD)
#undef FIELD
    return rb_obj_freeze(hash);
}

static bool glibc_is_tried(const struct readings *readings) {
    return readings->wants_malloc && is_allocator(MEMSCOPE_ALLOCATOR_GLIBC);
}

static bool glibc_is_read(const struct readings *readings) {
    return glibc_is_tried(readings) && readings->glibc_status == MEMSCOPE_OK;
}

/* Returns nil if nothing is missing. */
static VALUE glibc_reason(const struct readings *readings) {
    if (!is_allocator(MEMSCOPE_ALLOCATOR_GLIBC))
        return memscope_reason("glibc_not_serving");
    if (!glibc_is_tried(readings))
        return memscope_reason("mallinfo_not_requested");
    if (!glibc_is_read(readings))
        return memscope_reason("mallinfo_absent");
    return Qnil;
}

/* Frozen, so that the sentences for equal reasons, which most snapshots give, are made once (Reasons.sentences). */
static VALUE reasons_to_hash(const struct readings *readings) {
    VALUE jemalloc = jemalloc_reason(readings), glibc = glibc_reason(readings), reasons = rb_hash_new();

    set_statm_reasons(reasons, readings);
    if (NIL_P(heap_stat))
        memscope_set_reason(reasons, "gc_heaps", "gc_heaps_absent");
    if (!NIL_P(jemalloc))
        memscope_hash_set(reasons, "jemalloc", jemalloc);
    if (!NIL_P(glibc))
        memscope_hash_set(reasons, "glibc", glibc);
    return rb_obj_freeze(reasons);
}

/* Tier T1, or T2 with mallinfo2. */
VALUE native_snapshot(VALUE self, VALUE malloc) {
    struct readings readings = {.wants_malloc = RTEST(malloc)};
    uint64_t start = memscope_now_ns();
    VALUE gc, body;

    read_all(&readings);
    gc = rb_obj_freeze(rb_hash_dup(gc_stat));
    body = figures_to_hash(&readings);
    memscope_hash_add(body, {"gc", gc}, {"gc_heaps", copy_heaps()},
                      {"jemalloc", jemalloc_is_read(&readings) ? jemalloc_to_hash(&readings.jemalloc) : Qnil},
                      {"glibc", glibc_is_read(&readings) ? glibc_to_hash(&readings.glibc) : Qnil});
    return memscope_finish(body, reasons_to_hash(&readings), readings.wants_malloc ? "T2" : "T1", start,
                           readings.without_gvl_ns, 0);
}

static void learn_gc(void) {
    VALUE heaps;

    gc_stat = rb_hash_new();
    rb_gc_register_mark_object(gc_stat); /* what follows may collect */
    rb_gc_stat(gc_stat);
    id_stat_heap = rb_intern("stat_heap");
    heaps = rb_respond_to(rb_mGC, id_stat_heap) ? rb_funcall(rb_mGC, id_stat_heap, 0) : Qnil;
    rb_gc_register_mark_object(heaps);
    heap_stat = heaps;
    RB_GC_GUARD(heaps);
}

/* Defines Native::JEMALLOC_COUNTERS, the keys whose values only rise. Ruby has no other table of the keys. */
static void define_jemalloc_counters(void) {
#define STAT(field, key, type, unit, kind, since) #kind,
    static const char *const kinds[] = {
#include "malloc/jemalloc_stats.def"
    };
    VALUE counters = rb_ary_new();

    for (size_t field = 0; field < MEMSCOPE_JEMALLOC_FIELD_COUNT; field++) {
        jemalloc_keys[field] = memscope_symbol(jemalloc_names[field]);
        if (kinds[field][0] == 'c')
            rb_ary_push(counters, jemalloc_keys[field]);
    }
    rb_define_const(rb_mMemscopeNative, "JEMALLOC_COUNTERS", rb_obj_freeze(counters));
}

void Init_memscope_snapshot(void) {
    learn_gc();
    define_jemalloc_counters();
}
