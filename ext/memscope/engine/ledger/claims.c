#include "ledger/claims.h"

#include "base/merge_sort.h"
#include "base/range.h"

#include <string.h>

void memscope_claims_open(struct memscope_claims *claims, struct memscope_scratch *list_memory,
                          struct memscope_scratch *sort_memory) {
    memset(claims, 0, sizeof *claims);
    claims->list_memory = list_memory;
    claims->sort_memory = sort_memory;
    claims->list = memscope_scratch_take(list_memory, 0);
    claims->exhausted = claims->list == NULL;
}

size_t memscope_claims_position(const struct memscope_claims *claims, uintptr_t address) {
    return memscope_range_position(claims->list, claims->settled, sizeof *claims->list, address);
}

bool memscope_claims_next_gap(const struct memscope_claims *claims, uintptr_t *cursor, uintptr_t end,
                              uintptr_t *gap_start, uintptr_t *gap_end) {
    size_t index = memscope_claims_position(claims, *cursor);

    while (index < claims->settled && claims->list[index].start <= *cursor)
        *cursor = claims->list[index++].end;
    if (*cursor >= end)
        return false;
    *gap_start = *cursor;
    *gap_end = index < claims->settled && claims->list[index].start < end ? claims->list[index].start : end;
    *cursor = *gap_end;
    return true;
}

bool memscope_search_is_worth(const struct memscope_search *search, const struct memscope_mapping *mapping) {
    return search->residency == NULL ? memscope_mapping_is_data(mapping)
                                     : memscope_residency_worth_searching(search->residency, mapping);
}

bool memscope_search_next_gap(const struct memscope_search *search, struct memscope_gap *gap) {
    for (; gap->mapping < search->mappings->count; gap->mapping++) {
        const struct memscope_mapping *mapping = &search->mappings->list[gap->mapping];
        uintptr_t cursor = gap->end > mapping->start ? gap->end : mapping->start;

        if (!mapping->of_jemalloc && memscope_search_is_worth(search, mapping) &&
            memscope_claims_next_gap(search->claims, &cursor, mapping->end, &gap->start, &gap->end))
            return true;
    }
    return false;
}

void memscope_claims_add(struct memscope_claims *claims, uintptr_t start, uintptr_t end, uint32_t row, uint32_t item) {
    uintptr_t cursor = start, gap_start, gap_end;

    while (!claims->exhausted && memscope_claims_next_gap(claims, &cursor, end, &gap_start, &gap_end)) {
        const struct memscope_claim claim = {gap_start, gap_end, row, item};

        claims->exhausted = !memscope_scratch_add(claims->list_memory, &claims->count, &claim, sizeof claim);
    }
}

void memscope_claims_withdraw(struct memscope_claims *claims, size_t count) {
    claims->list_memory->used -= (claims->count - count) * sizeof *claims->list;
    claims->count = count;
}

static bool in_order(const void *left, const void *right) {
    return ((const struct memscope_claim *)left)->start <= ((const struct memscope_claim *)right)->start;
}

static bool is_sorted(const struct memscope_claim *list, size_t count) {
    for (size_t index = 1; index < count; index++)
        if (!in_order(&list[index - 1], &list[index]))
            return false;
    return true;
}

/* The settled part is already sorted, so only the claims added since are sorted, and then merged in. */
static void order(struct memscope_claims *claims) {
    struct memscope_claim *added = claims->list + claims->settled, *buffer;
    size_t used = claims->sort_memory->used;

    if (is_sorted(claims->list, claims->count))
        return;
    buffer = memscope_scratch_take(claims->sort_memory, claims->count * sizeof *buffer);
    if (buffer == NULL) {
        claims->exhausted = true;
        return;
    }
    memscope_merge_sort((char *)added, claims->count - claims->settled, sizeof *added, (char *)buffer, in_order);
    memscope_merge((const char *)claims->list, claims->settled, claims->count, sizeof *buffer, (char *)buffer,
                   in_order);
    memcpy(claims->list, buffer, claims->count * sizeof *buffer);
    claims->sort_memory->used = used;
}

void memscope_claims_settle(struct memscope_claims *claims) {
    size_t kept = 0;

    order(claims);
    for (size_t index = 0; index < claims->count; index++) {
        struct memscope_claim claim = claims->list[index];

        if (kept > 0 && claim.start < claims->list[kept - 1].end)
            claim.start = claims->list[kept - 1].end;
        if (claim.start < claim.end)
            claims->list[kept++] = claim;
    }
    memscope_claims_withdraw(claims, kept);
    claims->settled = kept;
}
