#include "bindings/ledger_binding.h"

static void add_reason(VALUE reasons, const char *id, VALUE text) {
    memscope_hash_set(reasons, id, text);
}

static void add_residency_reason(VALUE reasons, const struct memscope_residency *residency) {
    const char *why = memscope_status_text(residency->refusal);

    if (residency->source == MEMSCOPE_RESIDENCY_PAGEMAP)
        add_reason(reasons, "source",
                   rb_sprintf("ioctl PAGEMAP_SCAN is %s (Linux 6.7 has it): pages are read from /proc/self/pagemap, "
                              "which is as exact and slower",
                              why));
    else if (residency->source == MEMSCOPE_RESIDENCY_SMAPS)
        add_reason(reasons, "source",
                   rb_sprintf("/proc/self/pagemap is %s: only each mapping's resident bytes are known, and what lies "
                              "in a mapping of several owners is unattributed beyond what must be theirs",
                              why));
}

static void add_malloc_reason(VALUE reasons, const struct memscope_ledger_call *call) {
    const struct memscope_allocator *allocator = memscope_allocator_current();

    if (call->request.malloc == MEMSCOPE_LEDGER_MALLOC_OTHER)
        add_reason(reasons, "malloc",
                   rb_sprintf("the memory of this allocator (%s) cannot be told from other anonymous memory: it is "
                              "unattributed. %s",
                              memscope_allocator_name_text(allocator->name), allocator->proof));
    else if (call->request.malloc == MEMSCOPE_LEDGER_MALLOC_JEMALLOC && call->ledger.jemalloc_status != MEMSCOPE_OK)
        add_reason(reasons, "malloc",
                   rb_str_new_cstr("this jemalloc has no statistics (config.stats), so that nothing proves which "
                                   "mappings are its: they are unattributed"));
}

/* Names of types are C strings of any encoding. */
static VALUE valid_text(VALUE text) {
    VALUE scrubbed = rb_str_scrub(text, Qnil);

    return NIL_P(scrubbed) ? text : scrubbed;
}

static void add_left_out_reason(VALUE reasons, const struct memscope_held_memory *held) {
    VALUE text = rb_utf8_str_new_cstr("at least: objects whose size functions are slow are left out:");
    uint64_t others = held->left_out_objects;

    for (size_t index = 0; index < held->left_out_count; index++) {
        const struct memscope_left_out *type = &held->left_out[index];

        rb_str_catf(text, "%s %" PRIu64 " of %s", index == 0 ? "" : ",", type->objects,
                    type->name == NULL ? "a type without a name" : type->name);
        others -= type->objects;
    }
    if (others > 0)
        rb_str_catf(text, ", %" PRIu64 " of other types", others);
    if (held->left_out_objects > 0)
        add_reason(reasons, "held_by_objects_bytes", valid_text(text));
}

/* What was asked for beyond the plain ledger and could not be had. */
static void add_option_reasons(VALUE reasons, const struct memscope_ledger_call *call) {
    const struct memscope_ledger *ledger = &call->ledger;
    uint64_t in_use;

    if (call->request.deep && call->request.malloc == MEMSCOPE_LEDGER_MALLOC_JEMALLOC)
        add_reason(reasons, "deep", rb_str_new_cstr("no effect under jemalloc, which reports this itself"));
    else if (call->request.deep && !ledger->walked_chunks)
        add_reason(reasons, "deep",
                   rb_str_new_cstr("chunks are walked under glibc's malloc, where resident pages and this process's "
                                   "own memory can be read"));
    else if (call->request.deep && !memscope_glibc_knows_cache_key())
        add_reason(reasons, "thread_caches",
                   rb_str_new_cstr("this glibc does not mark cached chunks: they count as in use"));
    if (call->request.shared && ledger->shared_status != MEMSCOPE_OK)
        add_reason(reasons, "shared",
                   rb_sprintf("/proc/self/pagemap: %s", memscope_status_text(ledger->shared_status)));
    if (call->objects && !call->held.known)
        add_reason(reasons, "objects",
                   rb_str_new_cstr("objects cannot be walked in this Ruby, or beside other Ractors"));
    else if (call->objects && !memscope_ledger_malloc_in_use(ledger, &in_use))
        add_reason(reasons, "objects", rb_str_new_cstr("what malloc has given out is known with deep: true"));
}

/* When some of its mappings were not identified. */
static void add_jemalloc_reasons(VALUE reasons, const struct memscope_ledger *ledger) {
    if (ledger->ambiguous_mappings > 0)
        add_reason(reasons, "unattributed",
                   rb_sprintf("%" PRIuSIZE " mappings look like jemalloc's, and some of them are not: all of them are "
                              "unattributed, and what jemalloc has in them counts as not resident",
                              ledger->ambiguous_mappings));
    if (ledger->jemalloc_space_bytes < memscope_ledger_jemalloc_expected(ledger))
        add_reason(reasons, "not_resident",
                   rb_str_new_cstr("jemalloc has mapped more than was found (opt.dss, opt.hpa): what is resident there "
                                   "is unattributed, and counts as not resident"));
}

VALUE memscope_ledger_reasons(const struct memscope_ledger_call *call) {
    const struct memscope_ledger *ledger = &call->ledger;
    VALUE reasons = rb_hash_new();

    if (call->status != MEMSCOPE_OK) {
        add_reason(reasons, "rss_bytes",
                   rb_sprintf("/proc/self/maps and smaps: %s", memscope_status_text(call->status)));
        return reasons;
    }
    add_residency_reason(reasons, &ledger->residency);
    add_malloc_reason(reasons, call);
    add_option_reasons(reasons, call);
    add_left_out_reason(reasons, &call->held);
    if (call->listing.refusal != NULL)
        add_reason(reasons, "ruby_heap", rb_str_new_cstr(call->listing.refusal));
    else if (call->listing.finished_gc)
        add_reason(reasons, "ruby_heap",
                   rb_str_new_cstr("listing the heap pages finished a garbage collection that was under way: this "
                                   "Ruby has no way around it"));
    if (call->listing.refusal == NULL && call->listing.unswept)
        add_reason(reasons, "live_slots",
                   rb_str_new_cstr("the garbage collector is sweeping: what it has not reached counts as live"));
    if (call->other_ractors)
        add_reason(
            reasons, "ractors",
            rb_str_new_cstr("other Ractors are alive: they run beside this reading, and the Ruby rows are coarse"));
    if (ledger->stacks_status != MEMSCOPE_OK)
        add_reason(reasons, "threads",
                   rb_sprintf("thread stacks: %s, so that they are unattributed",
                              memscope_status_text(ledger->stacks_status)));
    if (ledger->own_memory_status != MEMSCOPE_OK)
        add_reason(reasons, "own_memory",
                   rb_sprintf("/proc/self/mem: %s, and a pipe in its place: %s; arenas, mmapped blocks and thread "
                              "stacks are unattributed",
                              memscope_status_text(ledger->own_memory_refusal),
                              memscope_status_text(ledger->own_memory_status)));
    else if (ledger->own_memory_refusal != MEMSCOPE_OK)
        add_reason(reasons, "own_memory",
                   rb_sprintf("/proc/self/mem: %s; this process's own memory is copied through a pipe, which is as "
                              "exact and slower",
                              memscope_status_text(ledger->own_memory_refusal)));
    if (ledger->jemalloc_status == MEMSCOPE_OK)
        add_jemalloc_reasons(reasons, ledger);
    return reasons;
}
