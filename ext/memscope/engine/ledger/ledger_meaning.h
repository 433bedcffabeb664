/*
 * The meaning of a ledger's rows: the rows that this process has, the checks of each, and the bytes that malloc has
 * given out. For a ledger that was read with MEMSCOPE_OK. Any context.
 */
#pragma once

#include "record_structs.h"

#include "ledger/ledger.h"

/* Returns true if this process can have the row. It is then listed even with 0 bytes. */
bool memscope_ledger_row_applies(const struct memscope_ledger *ledger, enum memscope_row row);

/*
 * Returns true if the row's shared bytes are known, provided that they were requested. They are never known for rows
 * that come from counters, chunks or a mark phase, only for the row above such rows.
 */
bool memscope_ledger_row_shares_known(const struct memscope_ledger *ledger, enum memscope_row row);

/* The sum of the chunks in a row, NULL without a walk, and for every other row. */
const struct memscope_chunk_sum *memscope_ledger_row_chunks(const struct memscope_ledger *ledger,
                                                            enum memscope_row row);

/* Two counts of the same address space, the owner's and the ledger's, which must be equal. */
struct memscope_row_check {
    const char *source; /* of expected_bytes */
    MEMSCOPE_EMBED(check_figures);
};

/* Returns false if the row has no check. */
bool memscope_ledger_row_check(const struct memscope_ledger *ledger, enum memscope_row row,
                               struct memscope_row_check *check);

/* Returns true if the chunks of glibc's heaps were all walked. Otherwise sums of chunks are only lower bounds. */
bool memscope_ledger_chunks_complete(const struct memscope_ledger *ledger);

/* Bytes that malloc has given out, resident or not. Returns false if they are unknown. */
bool memscope_ledger_malloc_in_use(const struct memscope_ledger *ledger, uint64_t *bytes);

/* Bytes that malloc_trim(0) returns. Returns false without a walk of all chunks. */
bool memscope_ledger_trimmable(const struct memscope_ledger *ledger, uint64_t *bytes);

/*
 * The trimmable bytes on pages that no other process maps, which the machine gains. Also returns false if the kernel
 * hides sharing.
 */
bool memscope_ledger_trimmable_private(const struct memscope_ledger *ledger, uint64_t *bytes);
