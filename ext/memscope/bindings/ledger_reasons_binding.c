#include "bindings/ledger_binding.h"
#include "bindings/reasons.h"

static void add_residency_reason(VALUE reasons, const struct memscope_residency *residency) {
    VALUE why = memscope_status_reason(residency->refusal);

    if (residency->source == MEMSCOPE_RESIDENCY_PAGEMAP)
        memscope_set_reason_of(reasons, "source", "pagemap_scan_unusable", why);
    else if (residency->source == MEMSCOPE_RESIDENCY_SMAPS)
        memscope_set_reason_of(reasons, "source", "pagemap_unusable", why);
}

static void add_malloc_reason(VALUE reasons, const struct memscope_ledger_call *call) {
    VALUE why = Qnil;

    if (call->request.malloc == MEMSCOPE_ALLOCATOR_JEMALLOC && call->ledger.jemalloc_status != MEMSCOPE_OK)
        why = memscope_reason("jemalloc_without_statistics");
    else if (call->request.malloc != MEMSCOPE_ALLOCATOR_JEMALLOC && call->request.malloc != MEMSCOPE_ALLOCATOR_GLIBC)
        why = rb_utf8_str_new_cstr(memscope_allocator_current()->proof);
    if (!NIL_P(why))
        memscope_set_reason_of(reasons, "malloc", "malloc_unidentified", why);
}

/* The reason why a requested option (deep, shared, objects) had no effect, or only a partial one. */
static void add_option_reasons(VALUE reasons, const struct memscope_ledger_call *call) {
    const struct memscope_ledger *ledger = &call->ledger;
    uint64_t in_use;

    if (call->request.deep && call->request.malloc == MEMSCOPE_ALLOCATOR_JEMALLOC)
        memscope_set_reason(reasons, "deep", "deep_without_effect");
    else if (call->request.deep && !ledger->walked_chunks)
        memscope_set_reason(reasons, "deep", "chunks_unread");
    else if (call->request.deep && !memscope_ledger_chunks_complete(ledger))
        memscope_set_reason(reasons, "deep", "chunks_incomplete");
    if (ledger->walked_chunks && !memscope_glibc_knows_cache_key())
        memscope_set_reason_of(reasons, "thread_caches", "cached_chunks_unmarked",
                               rb_utf8_str_new_cstr(memscope_allocator_current()->version));
    if (call->request.shared && ledger->shared_status != MEMSCOPE_OK)
        memscope_hash_set(reasons, "shared", memscope_unread("/proc/self/pagemap", ledger->shared_status));
    if (ledger->walked_chunks && ledger->trim_shared_status != MEMSCOPE_OK)
        memscope_hash_set(reasons, "trimmable_private_bytes",
                          memscope_unread("/proc/self/pagemap", ledger->trim_shared_status));
    if (call->objects && !call->walked_before && !call->held.known)
        memscope_set_reason(reasons, "objects", "objects_unwalked");
    else if (call->objects && !memscope_ledger_malloc_in_use(ledger, &in_use))
        memscope_set_reason(reasons, "objects",
                            ledger->walked_chunks ? "chunks_incomplete"
                            : call->request.deep  ? "chunks_unread"
                                                  : "needs_deep");
    else if (call->objects && call->held.bytes > in_use)
        memscope_set_reason(reasons, "untracked_bytes", "held_beyond_malloc");
}

/* Reasons given when some of jemalloc's mappings were not identified. */
static void add_jemalloc_reasons(VALUE reasons, const struct memscope_ledger *ledger) {
    if (ledger->beside_heaps > 0)
        memscope_set_reason_of(reasons, "unattributed", "malloc_beside_jemalloc",
                               rb_float_new((double)ledger->beside_bytes / (1 << 20)), SIZET2NUM(ledger->beside_heaps),
                               ULL2NUM(ledger->glibc.mmapped_chunk_count));
    if (ledger->ambiguous_mappings > 0)
        memscope_set_reason_of(reasons, "unattributed", "jemalloc_ambiguous", SIZET2NUM(ledger->ambiguous_mappings));
    if (ledger->jemalloc_space_bytes < memscope_ledger_jemalloc_expected(ledger))
        memscope_set_reason(reasons, "not_resident", "jemalloc_partly_found");
}

VALUE memscope_ledger_reasons(const struct memscope_ledger_call *call) {
    const struct memscope_ledger *ledger = &call->ledger;
    VALUE reasons = rb_hash_new();

    if (call->status != MEMSCOPE_OK) {
        memscope_hash_set(reasons, "rss_bytes", memscope_unread("/proc/self/maps and smaps", call->status));
        return reasons;
    }
    add_residency_reason(reasons, &ledger->residency);
    add_malloc_reason(reasons, call);
    add_option_reasons(reasons, call);
    memscope_set_left_out_reason(reasons, &call->held);
    if (call->listing.refusal != NULL)
        memscope_set_reason(reasons, "ruby_heap", call->listing.refusal);
    else if (call->finished_gc || call->listing.finished_gc)
        memscope_set_reason(reasons, "ruby_heap", "gc_finished");
    if (call->listing.refusal == NULL && call->listing.unswept)
        memscope_set_reason(reasons, "live_slots", "gc_sweeping");
    if (call->other_ractors)
        memscope_set_reason(reasons, "ractors", "ractors_alive");
    if (ledger->stacks_status != MEMSCOPE_OK)
        memscope_set_reason_of(reasons, "threads", "stacks_unread", memscope_status_reason(ledger->stacks_status));
    if (ledger->own_memory_status != MEMSCOPE_OK)
        memscope_set_reason_of(reasons, "own_memory", "own_memory_unread",
                               memscope_status_reason(ledger->own_memory_refusal),
                               memscope_status_reason(ledger->own_memory_status));
    else if (ledger->own_memory_refusal != MEMSCOPE_OK)
        memscope_set_reason_of(reasons, "own_memory", "own_memory_slow",
                               memscope_status_reason(ledger->own_memory_refusal));
    if (ledger->jemalloc_status == MEMSCOPE_OK)
        add_jemalloc_reasons(reasons, ledger);
    return reasons;
}
