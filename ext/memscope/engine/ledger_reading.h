/*
 * One ledger in the making, shared by the steps of memscope_ledger_read and by nobody else: ledger.c reads what the
 * kernel shows, ledger_owners.c says whose it is, ledger_sweep.c counts, ledger_split.c splits malloc's rows.
 */
#ifndef MEMSCOPE_LEDGER_READING_H
#define MEMSCOPE_LEDGER_READING_H

#include "claims.h"
#include "images.h"
#include "ledger.h"
#include "own_memory.h"

/* Lives on the stack of memscope_ledger_read. */
struct memscope_ledger_reading {
    const struct memscope_ledger_request *request;
    struct memscope_ledger *ledger;
    struct memscope_mappings_memory lists;
    struct memscope_own_memory memory;
    struct memscope_claims claims;
    const struct memscope_mapping *foreign; /* a NORESERVE mapping that is not jemalloc's */
    size_t first_owner;                     /* of the mapping that is being swept, in ledger->owners */
};

/* Tells apart a mapping that looks like jemalloc's and is not, and counts the address space of all that look so. */
void memscope_ledger_tell_foreign(struct memscope_ledger_reading *reading);

/* Collects the claims of every owner there is. */
void memscope_ledger_claim_owners(struct memscope_ledger_reading *reading);

/* Whose a mapping is where nothing in it was claimed. in_use stands for all that jemalloc holds until it is split. */
enum memscope_row memscope_ledger_owner_of_rest(const struct memscope_ledger_reading *reading,
                                                const struct memscope_mapping *mapping);

/* Gives every resident byte to the row of its owner. */
void memscope_ledger_sweep(struct memscope_ledger_reading *reading);

/* Splits the rows under malloc by jemalloc's own counters, or by the chunks that a walk of glibc's heaps finds. */
void memscope_ledger_split_jemalloc(struct memscope_ledger *ledger);
void memscope_ledger_split_glibc(struct memscope_ledger_reading *reading);

#endif
