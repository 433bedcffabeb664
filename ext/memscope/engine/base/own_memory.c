#include "base/own_memory.h"

#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WINDOW_BYTES ((size_t)64 << 10) /* small enough to be still in the CPU cache when it is copied out */

/*
 * Copies at most `size` bytes through the window or the pipe, and returns their number. Uses syscall because sanitizers
 * check the memory passed to pwrite. Three zeros make offset 0 in every ABI.
 */
static long copy_part(const struct memscope_own_memory *memory, uintptr_t address, char *into, size_t size) {
    long written;

    if (memory->window == NULL) {
        /* The pipe is empty before and after. A write stops when it is full, or before the first unreadable page. */
        written = syscall(SYS_write, memory->pipe_in, address, size);
        return written > 0 && read(memory->descriptor, into, (size_t)written) == written ? written : 0;
    }
    written = syscall(SYS_pwrite64, memory->descriptor, address, size, 0L, 0L, 0L);
    if (written > 0)
        memcpy(into, memory->window, (size_t)written);
    return written;
}

bool memscope_own_memory_read(const struct memscope_own_memory *memory, uintptr_t address, void *into, size_t size) {
    if (memory->window == NULL && memory->pipe_in < 0)
        return pread(memory->descriptor, into, size, (off_t)address) == (ssize_t)size;
    for (size_t done = 0; done < size;) {
        size_t left = size - done;
        long copied = copy_part(memory, address + done, (char *)into + done, left < WINDOW_BYTES ? left : WINDOW_BYTES);

        if (copied <= 0)
            return false;
        done += (size_t)copied;
    }
    return true;
}

static bool reads(const struct memscope_own_memory *memory) {
    int probe = 42, seen = 0;

    return memscope_own_memory_read(memory, (uintptr_t)&probe, &seen, sizeof seen) && seen == probe;
}

static enum memscope_status open_window(struct memscope_own_memory *memory) {
    if (memscope_file_size_limit() < WINDOW_BYTES)
        return MEMSCOPE_DENIED;
    memory->descriptor = memscope_descriptor_of_memory("memscope");
    if (memory->descriptor < 0 || ftruncate(memory->descriptor, WINDOW_BYTES) != 0)
        return memscope_status_of_errno(errno);
    memory->window = mmap(NULL, WINDOW_BYTES, PROT_READ, MAP_SHARED, memory->descriptor, 0);
    if (memory->window == MAP_FAILED) {
        memory->window = NULL;
        return memscope_status_of_errno(errno);
    }
    madvise((void *)memory->window, WINDOW_BYTES, MADV_DONTFORK);
    return reads(memory) ? MEMSCOPE_OK : MEMSCOPE_IO;
}

static enum memscope_status open_file_of_memory(struct memscope_own_memory *memory) {
    memory->descriptor = memscope_descriptor_open("/proc/self/mem", O_RDONLY);
    if (memory->descriptor < 0)
        return memscope_status_of_errno(errno);
    return reads(memory) ? MEMSCOPE_OK : MEMSCOPE_IO;
}

/* A pipe is subject neither to the limit on file sizes, as the window is, nor to the checks of /proc/self/mem. */
static enum memscope_status open_pipe(struct memscope_own_memory *memory) {
    int ends[2];

    if (!memscope_descriptors_of_pipe(ends))
        return memscope_status_of_errno(errno);
    memory->descriptor = ends[0];
    memory->pipe_in = ends[1];
    if (fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0)
        return memscope_status_of_errno(errno);
    return reads(memory) ? MEMSCOPE_OK : MEMSCOPE_IO;
}

enum memscope_status memscope_own_memory_open(struct memscope_own_memory *memory) {
    static enum memscope_status (*const ways[])(struct memscope_own_memory *) = {open_window, open_file_of_memory,
                                                                                 open_pipe};
    enum memscope_status status = MEMSCOPE_UNSUPPORTED;

    *memory = (struct memscope_own_memory){.descriptor = -1, .pipe_in = -1};
    for (size_t way = 0; way < sizeof ways / sizeof *ways && status != MEMSCOPE_OK; way++) {
        status = ways[way](memory);
        memory->refusal = way == 0 ? status : memory->refusal;
        if (status != MEMSCOPE_OK)
            memscope_own_memory_close(memory);
    }
    return status;
}

void memscope_own_memory_close(struct memscope_own_memory *memory) {
    if (memory->window != NULL)
        munmap((void *)memory->window, WINDOW_BYTES);
    if (memory->descriptor >= 0)
        memscope_descriptor_close(memory->descriptor);
    if (memory->pipe_in >= 0)
        memscope_descriptor_close(memory->pipe_in);
    memory->window = NULL;
    memory->descriptor = memory->pipe_in = -1;
}

struct memscope_range memscope_own_memory_window(const struct memscope_own_memory *memory) {
    uintptr_t start = (uintptr_t)memory->window;

    return (struct memscope_range){start, start == 0 ? 0 : start + WINDOW_BYTES};
}

void memscope_own_memory_read_each(const struct memscope_own_memory *memory, const uintptr_t *addresses, size_t count,
                                   size_t size, void *into) {
    char *element = into;

    for (size_t index = 0; index < count; index++, element += size)
        if (!memscope_own_memory_read(memory, addresses[index], element, size))
            memset(element, 0, size);
}
