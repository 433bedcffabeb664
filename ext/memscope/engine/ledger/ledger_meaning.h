/*
 * What the rows of a ledger mean: which of them this process has, what each is checked against, what malloc has given
 * out. For a ledger that was read with MEMSCOPE_OK; callable in any context.
 */
#ifndef MEMSCOPE_LEDGER_MEANING_H
#define MEMSCOPE_LEDGER_MEANING_H

#include "ledger/ledger.h"

/* Whether this process can have the row at all. If so, the row is listed even when it has 0 bytes. */
bool memscope_ledger_row_applies(const struct memscope_ledger *ledger, enum memscope_row row);

/*
 * Whether the row's shared bytes are known, if they were requested. They are never known for rows that come from
 * counters, chunks or a marking, only for the row above such rows.
 */
bool memscope_ledger_row_shares_known(const struct memscope_ledger *ledger, enum memscope_row row);

/* The sum of the chunks that a row counts; NULL without a walk, and for every other row. */
const struct memscope_chunk_sum *memscope_ledger_row_chunks(const struct memscope_ledger *ledger,
                                                            enum memscope_row row);

/* Two counts of the same address space, the owner's and the ledger's, which must be equal. */
struct memscope_row_check {
    const char *source; /* where expected_bytes comes from */
    uint64_t expected_bytes, actual_bytes;
};

/* Returns false if the row has no check. */
bool memscope_ledger_row_check(const struct memscope_ledger *ledger, enum memscope_row row,
                               struct memscope_row_check *check);

/* Whether the chunks of glibc's heaps were walked, and all of them: else sums of chunks are only lower bounds. */
bool memscope_ledger_chunks_complete(const struct memscope_ledger *ledger);

/* Bytes that malloc has given out, resident or not; false if the ledger does not know. */
bool memscope_ledger_malloc_in_use(const struct memscope_ledger *ledger, uint64_t *bytes);

/* Bytes that malloc_trim(0) returns; false without a walk of all chunks. */
bool memscope_ledger_trimmable(const struct memscope_ledger *ledger, uint64_t *bytes);

/*
 * The trimmable bytes on pages that no other process maps: what the machine gains. Also returns false if the kernel
 * hides which pages are shared.
 */
bool memscope_ledger_trimmable_private(const struct memscope_ledger *ledger, uint64_t *bytes);

#endif
