#include "kernel/sharing.h"

#ifdef __linux__

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Documentation/admin-guide/mm/pagemap.rst: present, and mapped by this process only */
#define ENTRY_PRESENT (1ull << 63)
#define ENTRY_EXCLUSIVE (1ull << 56)
#define BATCH ((size_t)2048)

enum memscope_status memscope_sharing_open(struct memscope_sharing *sharing, struct memscope_scratch *scratch) {
    sharing->start = sharing->end = 0;
    sharing->page = (uintptr_t)sysconf(_SC_PAGESIZE);
    sharing->entries = memscope_scratch_take(scratch, BATCH * sizeof *sharing->entries);
    if (sharing->entries == NULL)
        return MEMSCOPE_NO_MEMORY;
    sharing->descriptor = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (sharing->descriptor >= 0)
        return MEMSCOPE_OK;
    sharing->entries = NULL;
    return memscope_status_of_errno(errno);
}

void memscope_sharing_close(struct memscope_sharing *sharing) {
    if (sharing->entries != NULL)
        close(sharing->descriptor);
    sharing->entries = NULL;
}

/* Reads the entries of the pages from address on; what cannot be read counts as not shared. */
static void load(struct memscope_sharing *sharing, uintptr_t address) {
    ssize_t size = pread(sharing->descriptor, sharing->entries, BATCH * sizeof *sharing->entries,
                         (off_t)(address / sharing->page * sizeof *sharing->entries));

    sharing->start = address / sharing->page * sharing->page;
    sharing->end = sharing->start + (size > 0 ? (uintptr_t)size / sizeof *sharing->entries : 0) * sharing->page;
}

uint64_t memscope_sharing_between(struct memscope_sharing *sharing, uintptr_t start, uintptr_t end) {
    uint64_t bytes = 0;

    while (sharing->entries != NULL && start < end) {
        uintptr_t next = (start / sharing->page + 1) * sharing->page;
        uint64_t entry;

        if (next > end)
            next = end;
        if (start < sharing->start || start >= sharing->end)
            load(sharing, start);
        if (start >= sharing->end)
            return bytes;
        entry = sharing->entries[(start - sharing->start) / sharing->page];
        if ((entry & ENTRY_PRESENT) && !(entry & ENTRY_EXCLUSIVE))
            bytes += next - start;
        start = next;
    }
    return bytes;
}

#else

enum memscope_status memscope_sharing_open(struct memscope_sharing *sharing, struct memscope_scratch *scratch) {
    (void)scratch;
    sharing->entries = NULL;
    return MEMSCOPE_UNSUPPORTED;
}

void memscope_sharing_close(struct memscope_sharing *sharing) {
    sharing->entries = NULL;
}

uint64_t memscope_sharing_between(struct memscope_sharing *sharing, uintptr_t start, uintptr_t end) {
    (void)sharing, (void)start, (void)end;
    return 0;
}

#endif
