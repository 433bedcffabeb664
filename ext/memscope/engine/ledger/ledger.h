/*
 * The ledger: every resident byte of this process with its proven owner, in rows that sum to the RSS of one scan.
 *
 * It lists the mappings, reads the resident pages, claims ranges for their owners, then sweeps mappings, resident pages
 * and claims together, once. Residency is read once. If the caller does not hold the GVL, changes by other threads
 * during the scan can put a byte near a moving boundary into a neighbouring row, but never leave it out of the sum. A
 * byte without a proven owner is unattributed.
 */
#pragma once

#include "base/scratch.h"
#include "base/status.h"
#include "kernel/mappings.h"
#include "kernel/process.h"
#include "kernel/residency.h"
#include "ledger/claims.h"
#include "ledger/glibc_chunks.h"
#include "ledger/glibc_regions.h"
#include "ledger/images.h"
#include "ledger/ruby_regions.h"
#include "ledger/stacks.h"
#include "malloc/allocator.h"
#include "malloc/jemalloc.h"

struct memscope_ledger_request {
    enum memscope_allocator_name malloc; /* the proven one, which the rows under malloc describe: glibc's, jemalloc's */
    const struct memscope_ruby_layout *ruby;
    const struct memscope_images *images; /* read by the caller, while it prevents forks */
    bool deep;                            /* walks glibc's chunks: 0.15 to 0.3 µs each */
    bool shared; /* counts bytes shared with other processes: reads 8 bytes for each resident page */
};

/* Resident bytes of one mapping in one row: Ruby's heap as one row, malloc's memory by region and not by use. */
struct memscope_ledger_owner {
    const struct memscope_mapping *mapping;
    enum memscope_row row;
    uint64_t bytes;
};

struct memscope_ledger {
    const struct memscope_ledger_request *request; /* the caller's */
    int64_t bytes[MEMSCOPE_ROW_COUNT];          /* set for leaf rows, summed for parents by memscope_ledger_row_bytes */
    uint64_t written_bytes[MEMSCOPE_ROW_COUNT]; /* rows under files only: bytes in writable parts (data, bss) */
    uint64_t shared_bytes[MEMSCOPE_ROW_COUNT];  /* set for leaf rows, if requested and shared_status is OK */
    enum memscope_status shared_status;
    struct memscope_residency residency;
    struct memscope_mappings mappings;
    struct memscope_ledger_owner *owners; /* sorted by the mapping's address */
    size_t owner_count;
    struct memscope_claims claims; /* settled, without memory that the kernel names, such as [heap] */
    uint64_t unmapped_bytes;       /* resident outside every listed mapping, because mapped after the list was read */

    struct memscope_statm statm_before, statm_after; /* right before and right after the scan */
    enum memscope_status statm_status;

    uint64_t heap_pages_partly_resident;
    struct memscope_glibc_regions glibc;
    struct memscope_chunk_totals main_heap, arenas; /* totals of the chunk walk, main_heap with the pieces */
    bool walked_chunks;
    bool marked;                             /* memscope_ledger_split_garbage was called */
    enum memscope_status trim_shared_status; /* of the totals' trimmable_shared_bytes */
    uint64_t locked_bytes;                   /* malloc's resident bytes in locked mappings */
    enum memscope_status return_status;      /* OK if madvise returns pages that are not locked (returnable.h) */
    struct memscope_stack_counts stacks;
    struct memscope_ruby_regions ruby;
    enum memscope_status stacks_status;
    enum memscope_status own_memory_status;  /* unless OK, arenas, mmapped chunks, threads, empty pages are not found */
    enum memscope_status own_memory_refusal; /* reason for the lack of a memfd to read through, MEMSCOPE_OK with one */

    struct memscope_jemalloc_stats jemalloc;
    enum memscope_status jemalloc_status;
    uint64_t jemalloc_space_bytes; /* address space of the mappings that are or look like jemalloc's */
    size_t ambiguous_mappings;     /* mappings of which only some are jemalloc's, all of them unattributed */
    size_t beside_heaps;           /* under jemalloc: heaps of the C library's malloc, which a library calls directly */
    uint64_t beside_bytes; /* resident in these heaps and in mmapped chunks of that malloc, all of them unattributed */

    size_t scratch_bytes;
    struct memscope_scratch work, list, claim_memory; /* closed by memscope_ledger_close */
};

/*
 * Fills `ledger`, which must be closed afterwards, whatever the status. If the kernel shows no residency, returns the
 * reason, with residency.source NONE. Takes no lock except jemalloc's, which jemalloc makes usable again in a forked
 * child. Calls no malloc, and needs no GVL.
 */
enum memscope_status memscope_ledger_read(const struct memscope_ledger_request *request,
                                          struct memscope_ledger *ledger);
void memscope_ledger_close(struct memscope_ledger *ledger);

/*
 * Splits live slots and the rows of malloc's blocks in use into reachable and garbage. `garbage` holds the bytes of
 * garbage in each row to split, counted as the ledger counts that row. Blocks without an object count as reachable.
 */
void memscope_ledger_split_garbage(struct memscope_ledger *ledger, const uint64_t garbage[MEMSCOPE_ROW_COUNT]);

/* The bytes of a row and of all rows under it. */
int64_t memscope_ledger_row_bytes(const struct memscope_ledger *ledger, enum memscope_row row);
uint64_t memscope_ledger_row_shared_bytes(const struct memscope_ledger *ledger, enum memscope_row row);

/* The table of ledger_rows.def. */
enum memscope_row_kind {
    MEMSCOPE_ROWS_OF_PAGES,
    MEMSCOPE_ROWS_OF_LISTED_HEAP,
    MEMSCOPE_ROWS_OF_UNLISTED_HEAP,
    MEMSCOPE_ROWS_OF_GLIBC,
    MEMSCOPE_ROWS_OF_TRANSIENT_HEAP,
    MEMSCOPE_ROWS_OF_SHAPE_TABLES,
    MEMSCOPE_ROWS_OF_CHUNKS,
    MEMSCOPE_ROWS_OF_JEMALLOC,
    MEMSCOPE_ROWS_OF_MARKED,
};

struct memscope_row_definition {
    const char *id;
    enum memscope_row parent; /* MEMSCOPE_ROW_top for a top row */
    enum memscope_row_kind kind;
    const char *label;
};
extern const struct memscope_row_definition memscope_row_definitions[MEMSCOPE_ROW_COUNT];

/*
 * The address space that jemalloc reports as mapped, which equals jemalloc_space_bytes if all its mappings were found.
 * Under jemalloc only.
 */
static inline uint64_t memscope_ledger_jemalloc_expected(const struct memscope_ledger *ledger) {
    return ledger->jemalloc.mapped_bytes + ledger->jemalloc.retained_bytes;
}
