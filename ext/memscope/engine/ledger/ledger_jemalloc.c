#include "ledger/ledger_scan.h"

/*
 * The minimum size of a mapping by jemalloc, in bytes. With opt.retain (the default on 64-bit Linux) extents grow by
 * huge pages, and so do base blocks (jemalloc 5.3, HUGEPAGE in src/base.c and exp_grow in src/extent.c). A smaller
 * unclaimed mapping may belong to another owner, such as the dynamic linker or a library.
 */
#define MIN_MAPPING_BYTES ((uint64_t)2 << 20)

/* The mapping's bytes outside of glibc's heaps, 0 if any other owner has claimed a part of it. */
static uint64_t size(const struct memscope_claims *claims, const struct memscope_mapping *mapping) {
    uint64_t bytes = mapping->end - mapping->start;

    for (size_t index = memscope_claims_position(claims, mapping->start);
         index < claims->count && claims->list[index].start < mapping->end; index++) {
        const struct memscope_claim *claim = &claims->list[index];

        if (claim->row != MEMSCOPE_ROW_unattributed)
            return 0;
        bytes -= (claim->end < mapping->end ? claim->end : mapping->end) -
                 (claim->start > mapping->start ? claim->start : mapping->start);
    }
    return bytes;
}

/*
 * Marks the unclaimed data mappings of at least this size, which is above 0, all of them or those with MAP_NORESERVE.
 * Sets jemalloc_space_bytes to their address space, and returns true if that is as expected.
 */
static bool mark_unclaimed(struct memscope_ledger_scan *scan, uint64_t smallest, bool noreserve) {
    struct memscope_ledger *ledger = scan->ledger;

    ledger->jemalloc_space_bytes = 0;
    ledger->ambiguous_mappings = 0;
    for (size_t index = 0; index < ledger->mappings.count; index++) {
        struct memscope_mapping *mapping = &ledger->mappings.list[index];
        bool may_be = memscope_mapping_is_data(mapping) && (mapping->noreserve || !noreserve);
        uint64_t unclaimed = may_be ? size(&scan->ledger->claims, mapping) : 0;

        mapping->of_jemalloc = unclaimed >= smallest;
        ledger->jemalloc_space_bytes += mapping->of_jemalloc ? unclaimed : 0;
    }
    return ledger->jemalloc_space_bytes == memscope_ledger_jemalloc_expected(ledger);
}

/* Unmarks the marked mappings of `smallest` to `largest` bytes, and returns their number. */
static size_t unmark(struct memscope_ledger_scan *scan, uint64_t smallest, uint64_t largest) {
    const struct memscope_mappings *mappings = &scan->ledger->mappings;
    size_t count = 0;

    for (size_t index = 0; index < mappings->count; index++) {
        struct memscope_mapping *mapping = &mappings->list[index];

        if (!mapping->of_jemalloc || size(&scan->ledger->claims, mapping) < smallest ||
            size(&scan->ledger->claims, mapping) > largest)
            continue;
        mapping->of_jemalloc = false;
        count++;
    }
    return count;
}

bool memscope_ledger_mark_jemalloc_by_exclusion(struct memscope_ledger_scan *scan) {
    if (mark_unclaimed(scan, 1, false) || mark_unclaimed(scan, MIN_MAPPING_BYTES, false))
        return true;
    unmark(scan, 0, UINT64_MAX);
    return false;
}

static size_t count_of_size(const struct memscope_ledger_scan *scan, uint64_t bytes) {
    const struct memscope_mappings *mappings = &scan->ledger->mappings;
    size_t count = 0;

    for (size_t index = 0; index < mappings->count; index++)
        count += mappings->list[index].of_jemalloc && size(&scan->ledger->claims, &mappings->list[index]) == bytes;
    return count;
}

/*
 * MAP_NORESERVE alone proves nothing: the address space of all such unclaimed mappings must equal stats.mapped +
 * stats.retained. If that address space is larger, and exactly one mapping is as large as the difference, that mapping
 * is foreign. Otherwise every mapping up to the size of the difference may be foreign, and none of them counts as
 * jemalloc's.
 */
void memscope_ledger_mark_jemalloc_by_noreserve(struct memscope_ledger_scan *scan) {
    struct memscope_ledger *ledger = scan->ledger;
    uint64_t expected = memscope_ledger_jemalloc_expected(ledger), foreign;

    mark_unclaimed(scan, 1, true);
    if (ledger->jemalloc_space_bytes <= expected)
        return;
    foreign = ledger->jemalloc_space_bytes - expected;
    if (count_of_size(scan, foreign) == 1)
        unmark(scan, foreign, foreign);
    else
        ledger->ambiguous_mappings = unmark(scan, 0, foreign);
}
