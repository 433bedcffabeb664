/*
 * One ledger under construction, shared by the steps of memscope_ledger_read only: ledger.c reads from the kernel,
 * ledger_owners.c finds owners, ledger_sweep.c counts, ledger_split.c splits malloc's rows.
 */
#pragma once

#include "base/own_memory.h"
#include "ledger/claims.h"
#include "ledger/images.h"
#include "ledger/ledger.h"

/* Lives on the stack of memscope_ledger_read. */
struct memscope_ledger_scan {
    const struct memscope_ledger_request *request;
    struct memscope_ledger *ledger;
    struct memscope_mappings_memory lists;
    struct memscope_own_memory memory;
    struct memscope_search search; /* of the memory and the ledger, with its residency as soon as that is read */
    size_t first_owner;            /* index in ledger->owners of the first owner in the mapping being swept */
};

/*
 * Both functions mark jemalloc's mappings, and set jemalloc_space_bytes to the address space of all mappings that look
 * like jemalloc's. Heaps claimed by memscope_ledger_claim_beside_jemalloc do not count, since the kernel may have
 * merged one with a mapping of jemalloc's.
 *
 * By exclusion, all data mappings that no owner has claimed are marked, or only the large ones. The function returns
 * false and marks nothing if neither set adds up to jemalloc's own count of mapped bytes. MAP_NORESERVE needs a list
 * from smaps.
 */
bool memscope_ledger_mark_jemalloc_by_exclusion(struct memscope_ledger_scan *scan);
void memscope_ledger_mark_jemalloc_by_noreserve(struct memscope_ledger_scan *scan);

/* Claims memory for owners that are located without a search. They are the most certain, so they come first. */
void memscope_ledger_claim_known(struct memscope_ledger_scan *scan);

/*
 * Claims as unattributed the heaps of glibc's arenas that exist beside jemalloc because a library calls the C library's
 * malloc directly. The row malloc and its check are jemalloc's. Returns true if there are any.
 */
bool memscope_ledger_claim_beside_jemalloc(struct memscope_ledger_scan *scan);

/* Claims memory for owners that must be searched for in resident memory. */
void memscope_ledger_claim_found(struct memscope_ledger_scan *scan);

/* The owner of the unclaimed part of a mapping. All memory of jemalloc is malloc's until the split. */
enum memscope_row memscope_ledger_owner_of_rest(const struct memscope_ledger_scan *scan,
                                                const struct memscope_mapping *mapping);

/* Adds every resident byte to its owner's row. */
void memscope_ledger_sweep(struct memscope_ledger_scan *scan);

/* Splits the rows under malloc by jemalloc's own counters, or by the chunks that a walk of glibc's heaps finds. */
void memscope_ledger_split_jemalloc(struct memscope_ledger *ledger);
void memscope_ledger_split_glibc(struct memscope_ledger_scan *scan);

/* Walks all of glibc's heaps that the ledger has found. The forecast of malloc_blocks.h calls it in a forked child. */
void memscope_ledger_walk_chunks(struct memscope_chunk_walk *walk, const struct memscope_ledger *ledger,
                                 struct memscope_chunk_totals *main_heap, struct memscope_chunk_totals *arenas);
