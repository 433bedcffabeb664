#include "ledger/ledger_scan.h"

/*
 * jemalloc maps at least this many bytes at a time: with opt.retain (the default on 64-bit Linux) extents grow by huge
 * pages, and so do base blocks (jemalloc 5.3, HUGEPAGE in src/base.c and exp_grow in src/extent.c). A smaller unclaimed
 * mapping may belong to something else: the dynamic linker, a library.
 */
#define SMALLEST ((uint64_t)2 << 20)

static uint64_t size(const struct memscope_mapping *mapping) {
    return mapping->end - mapping->start;
}

static bool is_claimed(const struct memscope_claims *claims, const struct memscope_mapping *mapping) {
    size_t index = memscope_claims_position(claims, mapping->start);

    return index < claims->count && claims->list[index].start < mapping->end;
}

/* Marks the unclaimed data mappings of at least this size; returns their address space. */
static uint64_t mark_unclaimed(struct memscope_ledger_scan *scan, uint64_t smallest) {
    const struct memscope_mappings *mappings = &scan->ledger->mappings;
    uint64_t bytes = 0;

    for (size_t index = 0; index < mappings->count; index++) {
        struct memscope_mapping *mapping = &mappings->list[index];

        mapping->of_jemalloc =
            memscope_mapping_is_data(mapping) && size(mapping) >= smallest && !is_claimed(&scan->claims, mapping);
        bytes += mapping->of_jemalloc ? size(mapping) : 0;
    }
    return bytes;
}

/* Unmarks the marked mappings of `smallest` to `largest` bytes; returns how many there were. */
static size_t unmark(const struct memscope_mappings *mappings, uint64_t smallest, uint64_t largest) {
    size_t count = 0;

    for (size_t index = 0; index < mappings->count; index++) {
        struct memscope_mapping *mapping = &mappings->list[index];

        if (!mapping->of_jemalloc || size(mapping) < smallest || size(mapping) > largest)
            continue;
        mapping->of_jemalloc = false;
        count++;
    }
    return count;
}

bool memscope_ledger_tell_jemalloc_by_exclusion(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;
    uint64_t expected = memscope_ledger_jemalloc_expected(ledger);

    ledger->ambiguous_mappings = 0;
    ledger->jemalloc_space_bytes = expected;
    if (mark_unclaimed(scan, 0) == expected)
        return true;
    ledger->jemalloc_space_bytes = mark_unclaimed(scan, SMALLEST);
    if (ledger->jemalloc_space_bytes == expected)
        return true;
    unmark(&ledger->mappings, 0, UINT64_MAX);
    return false;
}

static size_t count_of_size(const struct memscope_mappings *mappings, uint64_t bytes) {
    size_t count = 0;

    for (size_t index = 0; index < mappings->count; index++)
        count += mappings->list[index].of_jemalloc && size(&mappings->list[index]) == bytes;
    return count;
}

/*
 * MAP_NORESERVE proves nothing by itself: the address space of all such unclaimed mappings must equal stats.mapped +
 * stats.retained. If that address space is larger, and exactly one mapping is as large as the difference, that mapping
 * is foreign. Otherwise every mapping up to the size of the difference may be foreign, and none of them counts as
 * jemalloc's.
 */
void memscope_ledger_tell_jemalloc_by_noreserve(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;
    uint64_t expected = memscope_ledger_jemalloc_expected(ledger), foreign;

    ledger->jemalloc_space_bytes = 0;
    ledger->ambiguous_mappings = 0;
    for (size_t index = 0; index < ledger->mappings.count; index++) {
        struct memscope_mapping *mapping = &ledger->mappings.list[index];

        mapping->of_jemalloc =
            memscope_mapping_is_data(mapping) && mapping->noreserve && !is_claimed(&scan->claims, mapping);
        ledger->jemalloc_space_bytes += mapping->of_jemalloc ? size(mapping) : 0;
    }
    if (ledger->jemalloc_space_bytes <= expected)
        return;
    foreign = ledger->jemalloc_space_bytes - expected;
    if (count_of_size(&ledger->mappings, foreign) == 1)
        unmark(&ledger->mappings, foreign, foreign);
    else
        ledger->ambiguous_mappings = unmark(&ledger->mappings, 0, foreign);
}
