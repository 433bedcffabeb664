/*
 * Counts resident pages that other processes map too: copy-on-write pages not written since a fork, and pages of files
 * and shared memory. Also counts pages that were shared after a fork, but no longer are.
 */
#pragma once

#include "base/range.h"
#include "base/scratch.h"
#include "base/status.h"
#include "kernel/residency.h"

struct memscope_sharing {
    int descriptor;    /* of /proc/self/pagemap, only while open */
    uint64_t *entries; /* of the pages in [start, end), NULL while closed */
    uintptr_t start, end;
    uintptr_t page;
    uint64_t begun; /* memscope_sharing_reading_begin */
};

/*
 * Opens pagemap for memscope_sharing_between, which reads 8 bytes of it per page: about 4 ms per GB in ascending order.
 * Closing it returns MEMSCOPE_SHARED if the counts are wrong (kernel/own_children.h). Does nothing while closed.
 */
enum memscope_status memscope_sharing_open(struct memscope_sharing *sharing, struct memscope_scratch *scratch);
enum memscope_status memscope_sharing_close(struct memscope_sharing *sharing);

/* Resident bytes in [start, end) that other processes map too. Cheapest in ascending order. 0 while closed. */
uint64_t memscope_sharing_between(struct memscope_sharing *sharing, uintptr_t start, uintptr_t end);

/*
 * Lists the anonymous pages that other processes map too: right after a fork, all inherited pages. The list is the last
 * block that this function takes from scratch. Returns MEMSCOPE_NO_MEMORY if the list does not fit.
 */
enum memscope_status memscope_sharing_anonymous(const struct memscope_residency *residency,
                                                struct memscope_scratch *scratch, const struct memscope_range **ranges,
                                                size_t *count);

/*
 * Resident bytes of the anonymous pages in these ranges that no other process maps any more, because a write or a pin
 * copied them, or because the other processes unmapped them.
 */
enum memscope_status memscope_sharing_ended(const struct memscope_range *ranges, size_t count,
                                            struct memscope_scratch *scratch, uint64_t *bytes);
