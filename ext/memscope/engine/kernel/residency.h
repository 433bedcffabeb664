/* The resident pages of this process, from the best source that this kernel grants. */
#pragma once

#include "base/range.h"
#include "base/scratch.h"
#include "base/status.h"
#include "kernel/mappings.h"

enum memscope_residency_source {
    MEMSCOPE_RESIDENCY_NONE,         /* nothing is known */
    MEMSCOPE_RESIDENCY_SMAPS,        /* bytes for each mapping, not which pages */
    MEMSCOPE_RESIDENCY_PAGEMAP,      /* page by page from /proc/self/pagemap */
    MEMSCOPE_RESIDENCY_PAGEMAP_SCAN, /* ranges from ioctl(PAGEMAP_SCAN), Linux 6.7 */
};

struct memscope_residency {
    enum memscope_residency_source source;
    const struct memscope_range *ranges; /* ascending, disjoint, none under SMAPS and NONE */
    size_t range_count;
    uint64_t resident_bytes;      /* the source's sum: the RSS of this reading */
    bool relisted;                /* the mappings were read again, as smaps, without their marks */
    enum memscope_status refusal; /* why the best source could not be used, or MEMSCOPE_OK */
};

/*
 * `mappings` is /proc/self/maps as just read. It is read again as smaps, in place, if only smaps can answer, or if
 * pagemap showed more pages than RSS (pagemap does not distinguish the zero page). Walks page tables: 7 to 18 ms for
 * each resident GB of 4 KiB pages. Needs no GVL. Allocates from scratch only.
 */
enum memscope_status memscope_residency_read(struct memscope_mappings *mappings,
                                             const struct memscope_mappings_memory *memory,
                                             struct memscope_residency *residency);

/* Returns true if every resident page is in a mapping, or if the source is SMAPS or NONE, which have no pages. */
bool memscope_residency_is_listed(const struct memscope_residency *residency, const struct memscope_mappings *mappings);

/*
 * Returns true if a mapping may have structures: it must hold data. Under SMAPS, where every address would have to be
 * read, the mapping must also be partly resident, and must not exceed a gigabyte.
 */
bool memscope_residency_worth_searching(const struct memscope_residency *residency,
                                        const struct memscope_mapping *mapping);

/*
 * Finds the next resident part of [*cursor, end) and moves *cursor past that part. Returns false when there is none.
 * Under SMAPS, which has no pages, the part is the whole range.
 */
bool memscope_residency_next(const struct memscope_residency *residency, uintptr_t *cursor, uintptr_t end,
                             struct memscope_range *part);

/*
 * Returns true if the page of this address is in memory now, even if it was not when residency was read. False if
 * unknown.
 */
bool memscope_is_resident_by_now(uintptr_t address);

/* Returns true if this address is mapped now, false if that is unknown. */
bool memscope_is_mapped_by_now(uintptr_t address);

/*
 * Returns the resident bytes in [start, end), or 0 if the source is SMAPS or NONE, which have no ranges. Takes time
 * logarithmic in range_count, plus linear in the number of ranges that overlap [start, end).
 */
uint64_t memscope_residency_between(const struct memscope_residency *residency, uintptr_t start, uintptr_t end);
