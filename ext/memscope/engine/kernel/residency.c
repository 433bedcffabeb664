#include "kernel/residency.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEARCH_LIMIT ((uintptr_t)1 << 30)

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/ioctl.h>

#include "base/copy.h"
#include "base/descriptors.h"
#include "kernel/process.h"

/* linux/fs.h of Linux 6.7, declared here because the headers of the build machine may be older than its kernel. */
struct scan_region {
    uint64_t start, end, categories;
};
struct scan_request {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN_REQUEST _IOWR('f', 16, struct scan_request)
#define SCAN_PRESENT (1u << 3)
#define SCAN_ZERO_PAGE (1u << 5)
#define SCAN_BATCH 512

/* Documentation/admin-guide/mm/pagemap.rst */
#define ENTRY_PRESENT (1ull << 63)
#define ENTRY_FILE_OR_SHARED (1ull << 61)
#define ENTRY_EXCLUSIVE (1ull << 56)
#define ENTRY_BATCH 2048

/*
 * Reading pagemap costs 8 bytes per page of address space: if any mapping is larger than this, smaps is read first, and
 * then pagemap only for mappings with some Rss.
 */
#define LARGE_MAPPING ((uintptr_t)4 << 30)
/*
 * If a mapping larger than this has resident pages, only smaps is used: pagemap has 128 MB of entries for 64 GB, and
 * sanitizers map terabytes.
 */
#define MAX_MAPPING ((uintptr_t)64 << 30)
/* Maximum excess of pagemap over RSS from the process running during a reading. */
#define DRIFT_BYTES ((uint64_t)256 << 10)

/*
 * The number of ranges to expect, by earlier readings of this process, so that the next reading can make room before it
 * scans. Only a hint: if it is too low, that costs a second scan.
 */
static _Atomic(size_t) expected_ranges = 512;

struct collector {
    struct memscope_scratch *scratch;
    struct memscope_range *ranges;
    size_t count;
    size_t room; /* elements whose pages were made resident beforehand */
    uint64_t bytes;
};

static bool collect(struct collector *collector, uintptr_t start, uintptr_t end) {
    collector->bytes += end - start;
    return memscope_scratch_add_range(collector->scratch, &collector->count, start, end);
}

static bool open_collector(struct collector *collector, struct memscope_scratch *scratch) {
    collector->scratch = scratch;
    collector->ranges = memscope_scratch_take(scratch, 0);
    collector->count = 0;
    collector->bytes = 0;
    collector->room = atomic_load(&expected_ranges);
    memscope_scratch_pretouch(scratch, collector->room * sizeof *collector->ranges);
    return collector->ranges != NULL;
}

/* Returns true if the scan grew RSS by touching new scratch pages. The caller then scans again, with more room. */
static bool outgrew_its_room(struct collector *collector) {
    if (collector->count <= collector->room)
        return false;
    atomic_store(&expected_ranges, collector->count + collector->count / 4);
    return true;
}

/* Ends at a batch that is not full: walk_end may be stale after a complete scan (seen on 6.18 with 1,100 regions). */
static enum memscope_status scan_part(int descriptor, uint64_t start, uintptr_t end, struct scan_region *batch,
                                      struct collector *collector) {
    int count;

    do {
        struct scan_request request = {.size = sizeof request,
                                       .start = start,
                                       .end = end,
                                       .vec = (uintptr_t)batch,
                                       .vec_len = SCAN_BATCH,
                                       .category_mask = SCAN_PRESENT,
                                       .return_mask = SCAN_PRESENT | SCAN_ZERO_PAGE};

        count = ioctl(descriptor, SCAN_REQUEST, &request);
        if (count < 0)
            return memscope_status_of_errno(errno);
        for (int index = 0; index < count; index++) {
            if (batch[index].categories & SCAN_ZERO_PAGE)
                continue;
            if (!collect(collector, batch[index].start, batch[index].end))
                return MEMSCOPE_NO_MEMORY;
        }
        if (count > 0)
            start = batch[count - 1].end;
    } while (count == SCAN_BATCH);
    return MEMSCOPE_OK;
}

/* The end of the highest mapping in user space, which excludes [vsyscall]. */
static uintptr_t user_space_end(const struct memscope_mappings *mappings) {
    for (size_t index = mappings->count; index > 0; index--)
        if (mappings->list[index - 1].end <= UINTPTR_MAX / 2)
            return mappings->list[index - 1].end;
    return 0;
}

/* Leaves out mappings of hugetlbfs, which are not in RSS. */
static enum memscope_status scan_once(int descriptor, const struct memscope_mappings *mappings,
                                      struct scan_region *batch, struct collector *collector) {
    uintptr_t start = 0, end = user_space_end(mappings);
    enum memscope_status status = MEMSCOPE_OK;

    for (size_t index = 0; index < mappings->count && status == MEMSCOPE_OK; index++) {
        if (!memscope_mapping_is_hugetlb(&mappings->list[index]))
            continue;
        if (mappings->list[index].start > start)
            status = scan_part(descriptor, start, mappings->list[index].start, batch, collector);
        start = mappings->list[index].end;
    }
    return status == MEMSCOPE_OK && start < end ? scan_part(descriptor, start, end, batch, collector) : status;
}

static enum memscope_status scan_ranges(int descriptor, const struct memscope_mappings *mappings,
                                        struct collector *collector) {
    struct memscope_scratch *scratch = collector->scratch;
    struct scan_region *batch = memscope_scratch_take(scratch, SCAN_BATCH * sizeof *batch);
    enum memscope_status status;

    if (batch == NULL)
        return MEMSCOPE_NO_MEMORY;
    memset(batch, 0, SCAN_BATCH * sizeof *batch);
    do {
        if (!open_collector(collector, scratch))
            return MEMSCOPE_NO_MEMORY;
        status = scan_once(descriptor, mappings, batch, collector);
    } while (status == MEMSCOPE_OK && outgrew_its_room(collector));
    return status;
}

/* Neither the zero page nor an anonymous page shared with a parent or child is exclusive or file-backed. */
static bool may_be_zero_page(uint64_t entry) {
    return (entry & (ENTRY_FILE_OR_SHARED | ENTRY_EXCLUSIVE)) == 0;
}

struct pagemap_pass {
    int descriptor;
    size_t page_size;
    uint64_t *entries;
    struct collector *collector;
    uint64_t doubtful_bytes;
};

static enum memscope_status read_mapping(struct pagemap_pass *pass, const struct memscope_mapping *mapping,
                                         bool skip_doubtful) {
    uintptr_t address = mapping->start;

    while (address < mapping->end) {
        size_t pages = (mapping->end - address) / pass->page_size;
        ssize_t bytes;

        if (pages > ENTRY_BATCH)
            pages = ENTRY_BATCH;
        bytes = pread(pass->descriptor, pass->entries, pages * sizeof *pass->entries,
                      (off_t)(address / pass->page_size * sizeof *pass->entries));
        if (bytes < 0 && errno != EINTR)
            return memscope_status_of_errno(errno);
        if (bytes == 0)
            return MEMSCOPE_OK;
        for (size_t index = 0; bytes > 0 && index < (size_t)bytes / sizeof *pass->entries; index++) {
            uint64_t entry = pass->entries[index];

            if (entry & ENTRY_PRESENT) {
                if (may_be_zero_page(entry))
                    pass->doubtful_bytes += pass->page_size;
                if (!(skip_doubtful && may_be_zero_page(entry)) &&
                    !collect(pass->collector, address, address + pass->page_size))
                    return MEMSCOPE_NO_MEMORY;
            }
            address += pass->page_size;
        }
    }
    return MEMSCOPE_OK;
}

/*
 * With use_smaps, each mapping carries its Rss. A mapping without Rss is skipped. If a mapping has more present pages
 * than Rss, some of them map the zero page: all pages that may be the zero page are left out, provided that the
 * remaining pages still amount to Rss.
 */
static enum memscope_status read_mappings(struct pagemap_pass *pass, const struct memscope_mappings *mappings,
                                          bool use_smaps) {
    enum memscope_status status = MEMSCOPE_OK;

    for (size_t index = 0; index < mappings->count && status == MEMSCOPE_OK; index++) {
        const struct memscope_mapping *mapping = &mappings->list[index];
        struct collector before = *pass->collector;
        size_t used = pass->collector->scratch->used;
        struct memscope_range last = before.count > 0 ? before.ranges[before.count - 1] : (struct memscope_range){0, 0};
        uint64_t doubtful = pass->doubtful_bytes, present;

        if (memscope_mapping_is_hugetlb(mapping) || (use_smaps && mapping->resident_bytes == 0))
            continue;
        status = read_mapping(pass, mapping, false);
        present = pass->collector->bytes - before.bytes;
        doubtful = pass->doubtful_bytes - doubtful;
        if (status == MEMSCOPE_OK && use_smaps && present > mapping->resident_bytes && doubtful > 0 &&
            present - doubtful >= mapping->resident_bytes) {
            *pass->collector = before;
            pass->collector->scratch->used = used;
            if (before.count > 0)
                before.ranges[before.count - 1] = last;
            status = read_mapping(pass, mapping, true);
        }
    }
    return status;
}

static enum memscope_status read_pagemap_once(struct pagemap_pass *pass, struct memscope_scratch *scratch,
                                              const struct memscope_mappings *mappings, bool use_smaps) {
    enum memscope_status status;

    do {
        pass->doubtful_bytes = 0;
        if (!open_collector(pass->collector, scratch))
            return MEMSCOPE_NO_MEMORY;
        status = read_mappings(pass, mappings, use_smaps);
    } while (status == MEMSCOPE_OK && outgrew_its_room(pass->collector));
    return status;
}

static bool has_mapping_beyond(const struct memscope_mappings *mappings, uintptr_t size, uint64_t resident_bytes) {
    for (size_t index = 0; index < mappings->count; index++)
        if (mappings->list[index].end - mappings->list[index].start > size &&
            mappings->list[index].resident_bytes >= resident_bytes)
            return true;
    return false;
}

static enum memscope_status list_anew(struct memscope_mappings *mappings, const struct memscope_mappings_memory *memory,
                                      struct memscope_residency *residency) {
    residency->relisted = true;
    return memscope_mappings_read(true, memory, mappings);
}

static enum memscope_status read_pagemap(int descriptor, struct memscope_mappings *mappings,
                                         const struct memscope_mappings_memory *memory, struct collector *collector,
                                         struct memscope_residency *residency) {
    struct memscope_scratch *scratch = memory->list;
    struct pagemap_pass pass = {.descriptor = descriptor, .collector = collector};
    struct memscope_statm statm;
    enum memscope_status status;
    bool use_smaps = has_mapping_beyond(mappings, LARGE_MAPPING, 0);

    pass.page_size = (size_t)sysconf(_SC_PAGESIZE);
    pass.entries = memscope_scratch_take(scratch, ENTRY_BATCH * sizeof *pass.entries);
    if (pass.entries == NULL)
        return MEMSCOPE_NO_MEMORY;
    memset(pass.entries, 0, ENTRY_BATCH * sizeof *pass.entries);
    if (use_smaps && (status = list_anew(mappings, memory, residency)) != MEMSCOPE_OK)
        return status;
    if (use_smaps && has_mapping_beyond(mappings, MAX_MAPPING, 1))
        return MEMSCOPE_TRUNCATED;
    status = read_pagemap_once(&pass, scratch, mappings, use_smaps);
    if (status != MEMSCOPE_OK || use_smaps || pass.doubtful_bytes == 0 || memscope_statm_read(&statm) != MEMSCOPE_OK ||
        collector->bytes <= statm.resident_bytes + DRIFT_BYTES)
        return status;
    status = list_anew(mappings, memory, residency);
    return status == MEMSCOPE_OK ? read_pagemap_once(&pass, scratch, mappings, true) : status;
}

static enum memscope_status read_pages(struct memscope_mappings *mappings,
                                       const struct memscope_mappings_memory *memory,
                                       struct memscope_residency *residency) {
    struct collector collector = {.scratch = memory->list};
    char path[MEMSCOPE_PROC_PATH];
    int descriptor = memscope_descriptor_open(memscope_path_in_proc(path, "pagemap"), O_RDONLY);
    enum memscope_status status;

    if (descriptor < 0)
        return memscope_status_of_errno(errno);
    residency->source = MEMSCOPE_RESIDENCY_PAGEMAP_SCAN;
    status = scan_ranges(descriptor, mappings, &collector);
    if (status != MEMSCOPE_OK && status != MEMSCOPE_NO_MEMORY) {
        residency->source = MEMSCOPE_RESIDENCY_PAGEMAP;
        residency->refusal = status;
        status = read_pagemap(descriptor, mappings, memory, &collector, residency);
    }
    memscope_descriptor_close(descriptor);
    residency->ranges = collector.ranges;
    residency->range_count = collector.count;
    residency->resident_bytes = collector.bytes;
    return status;
}

static enum memscope_status read_smaps(struct memscope_mappings *mappings,
                                       const struct memscope_mappings_memory *memory,
                                       struct memscope_residency *residency) {
    enum memscope_status status = list_anew(mappings, memory, residency);

    residency->source = status == MEMSCOPE_OK ? MEMSCOPE_RESIDENCY_SMAPS : MEMSCOPE_RESIDENCY_NONE;
    for (size_t index = 0; status == MEMSCOPE_OK && index < mappings->count; index++)
        residency->resident_bytes += mappings->list[index].resident_bytes;
    return status;
}

enum memscope_status memscope_residency_read(struct memscope_mappings *mappings,
                                             const struct memscope_mappings_memory *memory,
                                             struct memscope_residency *residency) {
    enum memscope_status status;

    *residency = (struct memscope_residency){.source = MEMSCOPE_RESIDENCY_NONE};
    status = read_pages(mappings, memory, residency);
    if (status == MEMSCOPE_OK || status == MEMSCOPE_NO_MEMORY)
        return status;
    *residency = (struct memscope_residency){.refusal = status};
    return read_smaps(mappings, memory, residency);
}

static size_t position(const struct memscope_residency *residency, uintptr_t address) {
    return memscope_range_position(residency->ranges, residency->range_count, sizeof *residency->ranges, address);
}

bool memscope_residency_is_listed(const struct memscope_residency *residency,
                                  const struct memscope_mappings *mappings) {
    size_t mapping = 0;

    for (size_t index = 0; index < residency->range_count; index++) {
        uintptr_t address = residency->ranges[index].start;

        while (address < residency->ranges[index].end) {
            while (mapping < mappings->count && mappings->list[mapping].end <= address)
                mapping++;
            if (mapping == mappings->count || mappings->list[mapping].start > address)
                return false;
            address = mappings->list[mapping].end;
        }
    }
    return true;
}

bool memscope_residency_worth_searching(const struct memscope_residency *residency,
                                        const struct memscope_mapping *mapping) {
    if (!memscope_mapping_is_data(mapping))
        return false;
    return residency->source != MEMSCOPE_RESIDENCY_SMAPS ||
           (mapping->resident_bytes > 0 && mapping->end - mapping->start <= SEARCH_LIMIT);
}

bool memscope_residency_next(const struct memscope_residency *residency, uintptr_t *cursor, uintptr_t end,
                             struct memscope_range *part) {
    size_t index = position(residency, *cursor);

    *part = (struct memscope_range){*cursor, end};
    if (residency->source != MEMSCOPE_RESIDENCY_SMAPS) {
        if (index >= residency->range_count)
            return false;
        if (residency->ranges[index].start > part->start)
            part->start = residency->ranges[index].start;
        if (residency->ranges[index].end < part->end)
            part->end = residency->ranges[index].end;
    }
    *cursor = part->end;
    return part->start < part->end;
}

static bool look_at_page(uintptr_t address, unsigned char *state) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

    return mincore((void *)(address & -page), page, state) == 0;
}

bool memscope_is_resident_by_now(uintptr_t address) {
    unsigned char state = 0;

    return look_at_page(address, &state) && (state & 1);
}

bool memscope_is_mapped_by_now(uintptr_t address) {
    unsigned char state;

    return look_at_page(address, &state);
}

uint64_t memscope_residency_between(const struct memscope_residency *residency, uintptr_t start, uintptr_t end) {
    size_t low = position(residency, start);
    uint64_t bytes = 0;

    for (; low < residency->range_count && residency->ranges[low].start < end; low++) {
        const struct memscope_range *range = &residency->ranges[low];
        uintptr_t from = range->start > start ? range->start : start, to = range->end < end ? range->end : end;

        bytes += to - from;
    }
    return bytes;
}
