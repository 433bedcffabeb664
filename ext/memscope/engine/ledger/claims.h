/*
 * Ownership claims: address ranges with a proven owner, sorted and disjoint.
 *
 * The first claim on an address stands. A later one gets only the part that is still free. Claims cover address space,
 * of which the sweep (ledger.h) decides the resident part.
 */
#pragma once

#include "base/own_memory.h"
#include "base/scratch.h"
#include "kernel/mappings.h"
#include "kernel/residency.h"

#define ROW(row, id, parent, kind, label) MEMSCOPE_ROW_##row,
enum memscope_row {
#include "ledger/ledger_rows.def"
    MEMSCOPE_ROW_COUNT,
    MEMSCOPE_ROW_top = MEMSCOPE_ROW_COUNT
};

/* Not a row: the claim is a Ruby heap page, which the sweep splits by slots. */
#define MEMSCOPE_CLAIM_HEAP_PAGE ((uint32_t)MEMSCOPE_ROW_COUNT + 1)

struct memscope_claim {
    uintptr_t start;
    uintptr_t end;
    uint32_t row;  /* enum memscope_row or MEMSCOPE_CLAIM_HEAP_PAGE */
    uint32_t item; /* index of the heap page, 1 in a file's bss, pages of a piece of the main arena, else 0 */
};

struct memscope_claims {
    struct memscope_scratch *list_memory; /* holds only claims, so that the list stays contiguous */
    struct memscope_scratch *sort_memory;
    struct memscope_claim *list;
    size_t count;
    size_t settled; /* sorted and disjoint up to here */
    bool exhausted; /* scratch memory ran out, claims are missing */
};

void memscope_claims_open(struct memscope_claims *claims, struct memscope_scratch *list_memory,
                          struct memscope_scratch *sort_memory);

/* Claims the parts of [start, end) that no settled claim covers. */
void memscope_claims_add(struct memscope_claims *claims, uintptr_t start, uintptr_t end, uint32_t row, uint32_t item);

/* Takes back all but the first `count` claims. Those taken back must not be settled. */
void memscope_claims_withdraw(struct memscope_claims *claims, size_t count);

/*
 * Merges the new claims into the settled ones, by address. Of two new claims that overlap, the one that starts higher
 * loses the common part. If both start at the same address, the one that was added later loses it.
 */
void memscope_claims_settle(struct memscope_claims *claims);

/*
 * Finds the first free range in [*cursor, end) and moves *cursor to the end of that range. Returns false if there is
 * none. Looks at settled claims only.
 */
bool memscope_claims_next_gap(const struct memscope_claims *claims, uintptr_t *cursor, uintptr_t end,
                              uintptr_t *gap_start, uintptr_t *gap_end);

/* The memory in which owners are searched, and the claims that they get. */
struct memscope_search {
    const struct memscope_mappings *mappings;
    const struct memscope_residency *residency; /* NULL as long as it has not been read */
    const struct memscope_own_memory *memory;
    struct memscope_claims *claims;
};

struct memscope_gap {
    size_t mapping; /* index of the mapping that holds it */
    uintptr_t start, end;
};

/*
 * Finds the next free range in a mapping that is worth searching and not jemalloc's (these, the largest, contain no
 * memory of other owners). Returns false if there is none. `gap` begins as zeros. Considers only settled claims.
 */
bool memscope_search_next_gap(const struct memscope_search *search, struct memscope_gap *gap);

/* Returns true if a mapping may contain structures, by memscope_residency_worth_searching if residency is known. */
bool memscope_search_is_worth(const struct memscope_search *search, const struct memscope_mapping *mapping);

/* The index of the first settled claim that ends after address. */
size_t memscope_claims_position(const struct memscope_claims *claims, uintptr_t address);
