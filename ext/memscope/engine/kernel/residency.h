/*
 * Which pages of this process are in memory, from the best source that this kernel grants.
 */
#ifndef MEMSCOPE_RESIDENCY_H
#define MEMSCOPE_RESIDENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    const struct memscope_range *ranges; /* ascending, disjoint; none under SMAPS and NONE */
    size_t range_count;
    uint64_t resident_bytes;      /* what the source sums to: the RSS of this reading */
    bool relisted;                /* the mappings were read again, as smaps: whatever was noted on them is gone */
    enum memscope_status refusal; /* why the best source did not serve; MEMSCOPE_OK when it did */
};

/*
 * mappings is what /proc/self/maps said just before. It is read again as smaps, in place, where only smaps can
 * answer, and where pagemap saw more pages than RSS has (it cannot tell the zero page from memory). Walks page
 * tables: 7 to 18 ms for each resident GB of 4 KiB pages. No GVL, no allocation but scratch.
 */
enum memscope_status memscope_residency_read(struct memscope_mappings *mappings,
                                             const struct memscope_mappings_memory *memory,
                                             struct memscope_residency *residency);

/*
 * Whether structures are worth looking for in a mapping: it is data, and some of it is resident. Under SMAPS every
 * address would have to be looked at, which is not done in mappings of more than a gigabyte.
 */
bool memscope_residency_worth_searching(const struct memscope_residency *residency,
                                        const struct memscope_mapping *mapping);

/*
 * The next resident part of [*cursor, end), which it moves *cursor behind; false when there is none. Under SMAPS, where
 * pages are not known, all of it may be resident.
 */
bool memscope_residency_next(const struct memscope_residency *residency, uintptr_t *cursor, uintptr_t end,
                             struct memscope_range *part);

/* Resident bytes in [start, end). Logarithmic plus the ranges crossed; 0 under SMAPS and NONE. */
uint64_t memscope_residency_between(const struct memscope_residency *residency, uintptr_t start, uintptr_t end);

#endif
