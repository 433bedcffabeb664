/*
 * Native.arenas and Native.size_classes: the allocator's statistics arena by arena and size class by size class.
 *
 * Everything is first read into scratch memory without the GVL, then turned into Hashes keyed by the names in the
 * engine's tables.
 */
#include "bindings/reasons.h"

#include "init.h"
#include "ledger/glibc_resident.h"
#include "malloc/allocator.h"
#include "malloc/glibc_info.h"
#include "malloc/jemalloc.h"
#include "malloc/jemalloc_arenas.h"

struct arenas_call {
    bool advance;   /* advance jemalloc's epoch first */
    bool classes;   /* reads size classes, not arenas */
    unsigned arena; /* the arena of the size classes */
    enum memscope_allocator_name allocator;
    enum memscope_status status;
    enum memscope_status resident_status; /* of reading the resident bytes of glibc's arenas */
    struct memscope_scratch scratch, sizes;
    struct memscope_jemalloc_arenas jemalloc;
    struct memscope_jemalloc_classes jemalloc_classes;
    struct memscope_glibc_arenas glibc;
    uint64_t start_ns, without_gvl_ns;
};

static enum memscope_status read_by_allocator(struct arenas_call *call) {
    struct memscope_glibc_arenas_memory memory = {&call->scratch, &call->sizes};
    bool jemalloc = call->allocator == MEMSCOPE_ALLOCATOR_JEMALLOC;

    if (memscope_scratch_open(&call->scratch) != MEMSCOPE_OK || memscope_scratch_open(&call->sizes) != MEMSCOPE_OK)
        return MEMSCOPE_NO_MEMORY;
    if (jemalloc && call->classes)
        return memscope_jemalloc_read_classes(&call->scratch, call->advance, call->arena, &call->jemalloc_classes);
    if (jemalloc)
        return memscope_jemalloc_read_arenas(&call->scratch, call->advance, &call->jemalloc);
    if (call->allocator == MEMSCOPE_ALLOCATOR_GLIBC && !call->classes)
        return memscope_glibc_read_arenas(&memory, &call->glibc);
    return MEMSCOPE_UNSUPPORTED;
}

static void read_call(void *argument) {
    struct arenas_call *call = argument;

    call->status = read_by_allocator(call);
    if (call->status == MEMSCOPE_OK && call->allocator == MEMSCOPE_ALLOCATOR_GLIBC)
        call->resident_status = memscope_glibc_read_resident(&call->glibc);
}

static VALUE known_value(const struct memscope_jemalloc_key *key, uint64_t value, uint64_t page_bytes) {
    if (key->is_signed)
        return LL2NUM(key->size == sizeof(int32_t) ? (int32_t)value : (int64_t)value);
    return ULL2NUM(key->in_pages ? value * page_bytes : value);
}

static void set_row(VALUE hash, enum memscope_jemalloc_group group, const struct memscope_jemalloc_row *row,
                    uint64_t page_bytes) {
    size_t count;
    const struct memscope_jemalloc_key *keys = memscope_jemalloc_keys(group, &count);

    for (size_t index = 0; index < count; index++)
        memscope_hash_set(hash, keys[index].field,
                          row->known >> index & 1 ? known_value(&keys[index], row->values[index], page_bytes) : Qnil);
}

static VALUE mutexes_to_hash(const struct memscope_jemalloc_row *mutexes) {
    VALUE hash = rb_hash_new();
    size_t count;
    const char *const *names = memscope_jemalloc_mutex_names(&count);

    for (size_t index = 0; index < count; index++) {
        VALUE mutex;

        if (mutexes[index].known == 0)
            continue;
        mutex = rb_hash_new();
        set_row(mutex, MEMSCOPE_JEMALLOC_MUTEX, &mutexes[index], 0);
        memscope_hash_set(hash, names[index], mutex);
    }
    return hash;
}

static VALUE jemalloc_arena_to_hash(const struct memscope_jemalloc_arena *arena, uint64_t page_bytes) {
    VALUE hash = rb_hash_new();

    memscope_hash_set(hash, "index", arena->index == MEMSCOPE_ALL_ARENAS ? Qnil : UINT2NUM(arena->index));
    if (arena->index != MEMSCOPE_ALL_ARENAS)
        memscope_hash_set(hash, "huge", arena->huge ? Qtrue : Qfalse);
    if (arena->name[0] != '\0')
        memscope_hash_set(hash, "name", rb_utf8_str_new_cstr(arena->name));
    set_row(hash, MEMSCOPE_JEMALLOC_ARENA, &arena->row, page_bytes);
    memscope_hash_set(hash, "mutexes", mutexes_to_hash(arena->mutexes));
    return hash;
}

static void set_jemalloc_arenas(VALUE body, const struct memscope_jemalloc_arenas *arenas) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < arenas->count; index++) {
        const struct memscope_jemalloc_arena *arena = &arenas->list[index];
        VALUE hash = jemalloc_arena_to_hash(arena, arenas->page_bytes);

        if (arena->index == MEMSCOPE_ALL_ARENAS)
            memscope_hash_set(body, "merged", hash);
        else
            rb_ary_push(list, hash);
    }
    memscope_hash_add(body, {"epoch", ULL2NUM(arenas->epoch)}, {"limit", UINT2NUM(arenas->narenas)}, {"arenas", list});
}

static VALUE free_sizes_to_array(const struct memscope_glibc_arenas *arenas, const struct memscope_glibc_arena *arena) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < arena->size_count; index++) {
        const struct memscope_glibc_free_size *size = &arenas->sizes[arena->first_size + index];

        rb_ary_push(list,
                    memscope_hash_of({"from_bytes", ULL2NUM(size->from_bytes)}, {"to_bytes", ULL2NUM(size->to_bytes)},
                                     {"bytes", ULL2NUM(size->bytes)}, {"blocks", ULL2NUM(size->blocks)},
                                     {"unsorted", size->unsorted ? Qtrue : Qfalse}));
    }
    return list;
}

static VALUE glibc_arena_to_hash(const struct memscope_glibc_arenas *arenas, const struct memscope_glibc_arena *arena) {
    VALUE hash = memscope_arena_hash(&arena->arena);

    memscope_hash_set(hash, "free_sizes", arena == &arenas->merged ? Qnil : free_sizes_to_array(arenas, arena));
    return hash;
}

static void set_glibc_arenas(VALUE body, const struct memscope_glibc_arenas *arenas) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < arenas->count; index++)
        rb_ary_push(list, glibc_arena_to_hash(arenas, &arenas->list[index]));
    memscope_hash_add(body, {"arenas", list}, {"merged", glibc_arena_to_hash(arenas, &arenas->merged)},
                      {"mmapped_bytes", ULL2NUM(arenas->mmapped_bytes)},
                      {"mmapped_blocks", ULL2NUM(arenas->mmapped_blocks)});
}

static void set_classes(VALUE body, const struct memscope_jemalloc_classes *classes) {
    VALUE list = rb_ary_new();

    for (size_t index = 0; index < classes->count; index++) {
        const struct memscope_jemalloc_class *class = &classes->list[index];
        VALUE hash = memscope_hash_of({"kind", memscope_symbol(class->large ? "large" : "small")});

        set_row(hash, class->large ? MEMSCOPE_JEMALLOC_EXTENT : MEMSCOPE_JEMALLOC_SLAB, &class->size, 0);
        set_row(hash, class->large ? MEMSCOPE_JEMALLOC_LARGE : MEMSCOPE_JEMALLOC_BIN, &class->statistics, 0);
        rb_ary_push(list, hash);
    }
    memscope_hash_add(body, {"epoch", ULL2NUM(classes->epoch)}, {"classes", list});
}

/* The reason why there is no list, or nil. */
static VALUE absence(const struct arenas_call *call) {
    if (call->status == MEMSCOPE_OK)
        return Qnil;
    if (call->allocator == MEMSCOPE_ALLOCATOR_JEMALLOC && memscope_jemalloc_unsupported_reason() != NULL)
        return memscope_reason(memscope_jemalloc_unsupported_reason());
    if (call->status == MEMSCOPE_NOT_FOUND)
        return memscope_reason_of("arena_absent", UINT2NUM(call->arena));
    if (call->status != MEMSCOPE_UNSUPPORTED)
        return memscope_unread(call->allocator == MEMSCOPE_ALLOCATOR_GLIBC ? "malloc_info" : "mallctl", call->status);
    if (call->allocator == MEMSCOPE_ALLOCATOR_GLIBC)
        return memscope_reason(call->classes ? "glibc_without_classes" : "malloc_info_absent");
    return memscope_reason("statistics_unread");
}

/* Reasons for glibc's missing fields, and for the keys that this jemalloc lacks. */
static void set_jemalloc_gaps(VALUE reasons, const struct memscope_jemalloc_arenas *arenas) {
    const struct memscope_jemalloc_arena *merged = &arenas->list[arenas->count - 1];
    size_t count;
    const struct memscope_jemalloc_key *keys = memscope_jemalloc_keys(MEMSCOPE_JEMALLOC_ARENA, &count);

    memscope_set_reason(reasons, "glibc", "glibc_not_serving");
    if (arenas->list[0].name[0] == '\0')
        memscope_set_reason(reasons, "name", "arena_names_absent");
    for (size_t index = 0; index < count; index++)
        if (!(merged->row.known >> index & 1))
            memscope_set_reason_of(reasons, keys[index].field, "jemalloc_lacks",
                                   rb_sprintf("stats.arenas.<i>.%s", keys[index].key));
}

static VALUE why_not_resident(const struct arenas_call *call) {
    if (call->resident_status != MEMSCOPE_OK && call->resident_status != MEMSCOPE_MALFORMED)
        return memscope_unread("arenas", call->resident_status);
    for (size_t index = 0; index < call->glibc.count; index++)
        if (call->glibc.list[index].resident_bytes == MEMSCOPE_UNKNOWN)
            return memscope_reason("arenas_changing");
    return Qnil;
}

static void set_glibc_gaps(VALUE reasons, const struct arenas_call *call) {
    VALUE why = why_not_resident(call);

    memscope_set_reason(reasons, "jemalloc", "jemalloc_not_serving");
    if (call->glibc.merged.fast_bytes == MEMSCOPE_UNKNOWN)
        memscope_set_reason(reasons, "fast_bytes", "fastbins_absent");
    if (!NIL_P(why))
        memscope_hash_set(reasons, "resident_bytes", why);
}

static VALUE reasons_to_hash(const struct arenas_call *call) {
    VALUE reasons = rb_hash_new(), absent = absence(call);
    bool listed = call->status == MEMSCOPE_OK && !call->classes;

    if (listed && call->allocator == MEMSCOPE_ALLOCATOR_JEMALLOC)
        set_jemalloc_gaps(reasons, &call->jemalloc);
    if (listed && call->allocator == MEMSCOPE_ALLOCATOR_GLIBC)
        set_glibc_gaps(reasons, call);
    if (call->jemalloc_classes.large_by_pages)
        memscope_set_reason(reasons, "in_use_bytes", "large_classes_rounded");
    if (!NIL_P(absent))
        memscope_hash_set(reasons, call->classes ? "classes" : "arenas", absent);
    if (call->jemalloc.mixed_epochs || call->jemalloc_classes.mixed_epochs)
        memscope_set_reason(reasons, "epoch", "epochs_mixed");
    return reasons;
}

static VALUE call_to_hash(VALUE argument) {
    struct arenas_call *call = (struct arenas_call *)argument;
    VALUE body = rb_hash_new();
    bool walks = call->allocator == MEMSCOPE_ALLOCATOR_GLIBC && !call->classes;

    call->without_gvl_ns = memscope_without_gvl(read_call, call);
    memscope_hash_set(body, "allocator", memscope_symbol(memscope_allocator_name_text(call->allocator)));
    memscope_hash_set(body, call->classes ? "classes" : "arenas", rb_ary_new());
    if (call->classes)
        memscope_hash_set(body, "arena", call->arena == MEMSCOPE_ALL_ARENAS ? Qnil : UINT2NUM(call->arena));
    if (call->status == MEMSCOPE_OK && call->classes)
        set_classes(body, &call->jemalloc_classes);
    else if (call->status == MEMSCOPE_OK && call->allocator == MEMSCOPE_ALLOCATOR_JEMALLOC)
        set_jemalloc_arenas(body, &call->jemalloc);
    else if (call->status == MEMSCOPE_OK)
        set_glibc_arenas(body, &call->glibc);
    return memscope_finish(body, reasons_to_hash(call), walks ? "T2" : "T1", call->start_ns, call->without_gvl_ns,
                           call->scratch.used + call->sizes.used);
}

static VALUE close_call(VALUE argument) {
    struct arenas_call *call = (struct arenas_call *)argument;

    memscope_scratches_close(&call->scratch, &call->sizes);
    return Qnil;
}

/* An interrupt that arrives while the engine reads is raised afterwards: rb_ensure frees the scratch memory. */
static VALUE perform(struct arenas_call call) {
    call.allocator = memscope_allocator_current()->name;
    call.start_ns = memscope_now_ns();
    return rb_ensure(call_to_hash, (VALUE)&call, close_call, (VALUE)&call);
}

/*
 * advance: true to have jemalloc refresh its statistics first (advance its epoch), false to read them as last
 * refreshed.
 */
VALUE native_arenas(VALUE self, VALUE advance) {
    return perform((struct arenas_call){.advance = RTEST(advance)});
}

/* arena: an index, or nil for all arenas together. */
VALUE native_size_classes(VALUE self, VALUE arena, VALUE advance) {
    return perform((struct arenas_call){
        .advance = RTEST(advance), .classes = true, .arena = NIL_P(arena) ? MEMSCOPE_ALL_ARENAS : NUM2UINT(arena)});
}
