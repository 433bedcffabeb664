#include "base/own_memory.h"

#include <string.h>

#ifdef __linux__

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PIPE_BYTES ((size_t)64 << 10) /* what an empty pipe holds by default */

/* syscall, since sanitizers check what they see a program write. A full pipe ends a write: nothing ever waits. */
static bool read_through_pipe(const struct memscope_own_memory *memory, uintptr_t address, char *into, size_t size) {
    for (size_t done = 0; done < size;) {
        size_t wanted = size - done < PIPE_BYTES ? size - done : PIPE_BYTES;
        long written = syscall(SYS_write, memory->pipe, address + done, wanted);

        if (written <= 0 || read(memory->descriptor, into + done, (size_t)written) != written)
            return false;
        done += (size_t)written;
    }
    return true;
}

bool memscope_own_memory_read(const struct memscope_own_memory *memory, uintptr_t address, void *into, size_t size) {
    if (memory->pipe >= 0)
        return read_through_pipe(memory, address, into, size);
    return pread(memory->descriptor, into, size, (off_t)address) == (ssize_t)size;
}

static enum memscope_status open_memory(struct memscope_own_memory *memory) {
    int probe = 42, seen = 0;

    memory->descriptor = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (memory->descriptor < 0)
        return memscope_status_of_errno(errno);
    if (memscope_own_memory_read(memory, (uintptr_t)&probe, &seen, sizeof seen) && seen == probe)
        return MEMSCOPE_OK;
    memscope_own_memory_close(memory);
    return MEMSCOPE_IO;
}

enum memscope_status memscope_own_memory_open(struct memscope_own_memory *memory) {
    int ends[2];

    memory->pipe = -1;
    memory->refusal = open_memory(memory);
    if (memory->refusal == MEMSCOPE_OK)
        return MEMSCOPE_OK;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return memscope_status_of_errno(errno);
    memory->descriptor = ends[0];
    memory->pipe = ends[1];
    return MEMSCOPE_OK;
}

void memscope_own_memory_close(struct memscope_own_memory *memory) {
    if (memory->descriptor >= 0)
        close(memory->descriptor);
    if (memory->pipe >= 0)
        close(memory->pipe);
    memory->descriptor = memory->pipe = -1;
}

#else

enum memscope_status memscope_own_memory_open(struct memscope_own_memory *memory) {
    *memory = (struct memscope_own_memory){-1, -1, MEMSCOPE_UNSUPPORTED};
    return MEMSCOPE_UNSUPPORTED;
}

void memscope_own_memory_close(struct memscope_own_memory *memory) {
    memory->descriptor = -1;
}

bool memscope_own_memory_read(const struct memscope_own_memory *memory, uintptr_t address, void *into, size_t size) {
    (void)memory, (void)address, (void)into, (void)size;
    return false;
}

#endif

void memscope_own_memory_read_each(const struct memscope_own_memory *memory, const uintptr_t *addresses, size_t count,
                                   size_t size, void *into) {
    char *element = into;

    for (size_t index = 0; index < count; index++, element += size)
        if (!memscope_own_memory_read(memory, addresses[index], element, size))
            memset(element, 0, size);
}
