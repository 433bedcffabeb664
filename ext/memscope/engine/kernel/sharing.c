#include "kernel/sharing.h"

#include "base/copy.h"
#include "base/descriptors.h"
#include "kernel/own_children.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Documentation/admin-guide/mm/pagemap.rst: page present, page of a file or of shared memory, page mapped only once */
#define ENTRY_PRESENT (1ull << 63)
#define ENTRY_FILE_OR_SHARED (1ull << 61)
#define ENTRY_EXCLUSIVE (1ull << 56)
#define BATCH ((size_t)2048)

/* The entries with (entry & mask) == bits. */
struct kind {
    uint64_t mask, bits;
};
static const struct kind shared = {ENTRY_PRESENT | ENTRY_EXCLUSIVE, ENTRY_PRESENT};
static const struct kind shared_anonymous = {ENTRY_PRESENT | ENTRY_EXCLUSIVE | ENTRY_FILE_OR_SHARED, ENTRY_PRESENT};
static const struct kind own_anonymous = {ENTRY_PRESENT | ENTRY_EXCLUSIVE | ENTRY_FILE_OR_SHARED,
                                          ENTRY_PRESENT | ENTRY_EXCLUSIVE};

enum memscope_status memscope_sharing_open(struct memscope_sharing *sharing, struct memscope_scratch *scratch) {
    char path[MEMSCOPE_PROC_PATH];

    sharing->start = sharing->end = 0;
    sharing->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    sharing->entries = memscope_scratch_take(scratch, BATCH * sizeof *sharing->entries);
    if (sharing->entries == NULL)
        return MEMSCOPE_NO_MEMORY;
    sharing->descriptor = memscope_descriptor_open(memscope_path_in_proc(path, "pagemap"), O_RDONLY);
    if (sharing->descriptor >= 0) {
        sharing->begun = memscope_sharing_reading_begin();
        return MEMSCOPE_OK;
    }
    sharing->entries = NULL;
    return memscope_status_of_errno(errno);
}

enum memscope_status memscope_sharing_close(struct memscope_sharing *sharing) {
    if (sharing->entries == NULL)
        return MEMSCOPE_OK;
    memscope_descriptor_close(sharing->descriptor);
    sharing->entries = NULL;
    return memscope_sharing_reading_end(sharing->begun);
}

/* Closes it after a reading with this status, and returns the status of the whole. */
static enum memscope_status close_after(struct memscope_sharing *sharing, enum memscope_status status) {
    enum memscope_status closed = memscope_sharing_close(sharing);

    return status == MEMSCOPE_OK ? closed : status;
}

/* Reads the entries of the pages from address on. Entries that cannot be read are treated as not shared. */
static void load(struct memscope_sharing *sharing, uintptr_t address) {
    ssize_t size = pread(sharing->descriptor, sharing->entries, BATCH * sizeof *sharing->entries,
                         (off_t)(address / sharing->page * sizeof *sharing->entries));

    sharing->start = address / sharing->page * sharing->page;
    sharing->end = sharing->start + (size > 0 ? (uintptr_t)size / sizeof *sharing->entries : 0) * sharing->page;
}

static uint64_t count(struct memscope_sharing *sharing, uintptr_t start, uintptr_t end, const struct kind *kind) {
    uint64_t bytes = 0;

    while (sharing->entries != NULL && start < end) {
        uintptr_t next = (start / sharing->page + 1) * sharing->page;

        if (next > end)
            next = end;
        if (start < sharing->start || start >= sharing->end)
            load(sharing, start);
        if (start >= sharing->end)
            return bytes;
        if ((sharing->entries[(start - sharing->start) / sharing->page] & kind->mask) == kind->bits)
            bytes += next - start;
        start = next;
    }
    return bytes;
}

uint64_t memscope_sharing_between(struct memscope_sharing *sharing, uintptr_t start, uintptr_t end) {
    return count(sharing, start, end, &shared);
}

enum memscope_status memscope_sharing_anonymous(const struct memscope_residency *residency,
                                                struct memscope_scratch *scratch, const struct memscope_range **ranges,
                                                size_t *range_count) {
    struct memscope_sharing sharing;
    enum memscope_status status = memscope_sharing_open(&sharing, scratch);
    struct memscope_range *list = memscope_scratch_take(scratch, 0);

    *ranges = list;
    *range_count = 0;
    if (status == MEMSCOPE_OK && list == NULL)
        status = MEMSCOPE_NO_MEMORY;
    for (size_t index = 0; status == MEMSCOPE_OK && index < residency->range_count; index++) {
        const struct memscope_range *resident = &residency->ranges[index];

        for (uintptr_t page = resident->start; page < resident->end; page += sharing.page)
            if (count(&sharing, page, page + sharing.page, &shared_anonymous) > 0 &&
                !memscope_scratch_add_range(scratch, range_count, page, page + sharing.page))
                status = MEMSCOPE_NO_MEMORY;
    }
    return close_after(&sharing, status);
}

enum memscope_status memscope_sharing_ended(const struct memscope_range *ranges, size_t range_count,
                                            struct memscope_scratch *scratch, uint64_t *bytes) {
    struct memscope_sharing sharing;
    enum memscope_status status = memscope_sharing_open(&sharing, scratch);

    *bytes = 0;
    for (size_t index = 0; status == MEMSCOPE_OK && index < range_count; index++)
        *bytes += count(&sharing, ranges[index].start, ranges[index].end, &own_anonymous);
    return close_after(&sharing, status);
}
