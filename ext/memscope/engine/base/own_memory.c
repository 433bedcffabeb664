#include "base/own_memory.h"

#include <string.h>

#ifdef __linux__

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#define BATCH 256 /* of at most IOV_MAX, 1024 */

static ssize_t copy(const struct memscope_own_memory *memory, uintptr_t address, void *into, size_t size) {
    struct iovec local = {into, size}, remote = {(void *)address, size};

    if (memory->descriptor >= 0)
        return pread(memory->descriptor, into, size, (off_t)address);
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
}

enum memscope_status memscope_own_memory_open(struct memscope_own_memory *memory) {
    int probe = 42, seen = 0;

    memory->descriptor = -1;
    if (copy(memory, (uintptr_t)&probe, &seen, sizeof seen) == (ssize_t)sizeof seen && seen == probe)
        return MEMSCOPE_OK;
    memory->descriptor = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (memory->descriptor < 0)
        return memscope_status_of_errno(errno);
    return MEMSCOPE_OK;
}

void memscope_own_memory_close(struct memscope_own_memory *memory) {
    if (memory->descriptor >= 0)
        close(memory->descriptor);
    memory->descriptor = -1;
}

bool memscope_own_memory_read(const struct memscope_own_memory *memory, uintptr_t address, void *into, size_t size) {
    return copy(memory, address, into, size) == (ssize_t)size;
}

/* Returns how many elements from the first on were copied whole. */
static size_t read_batch(const struct memscope_own_memory *memory, const uintptr_t *addresses, size_t count,
                         size_t size, char *into) {
    struct iovec local = {into, count * size}, remote[BATCH];
    ssize_t copied;

    if (memory->descriptor >= 0)
        return copy(memory, addresses[0], into, size) == (ssize_t)size ? 1 : 0;
    for (size_t index = 0; index < count; index++)
        remote[index] = (struct iovec){(void *)addresses[index], size};
    copied = process_vm_readv(getpid(), &local, 1, remote, count, 0);
    return copied < 0 ? 0 : (size_t)copied / size;
}

void memscope_own_memory_read_each(const struct memscope_own_memory *memory, const uintptr_t *addresses, size_t count,
                                   size_t size, void *into) {
    size_t done = 0;

    while (done < count) {
        size_t batch = count - done < BATCH ? count - done : BATCH;
        size_t read = read_batch(memory, addresses + done, batch, size, (char *)into + done * size);

        done += read;
        if (read < batch && (read == 0 || memory->descriptor < 0)) {
            memset((char *)into + done * size, 0, size);
            done++;
        }
    }
}

#else

enum memscope_status memscope_own_memory_open(struct memscope_own_memory *memory) {
    memory->descriptor = -1;
    return MEMSCOPE_UNSUPPORTED;
}

void memscope_own_memory_close(struct memscope_own_memory *memory) {
    memory->descriptor = -1;
}

bool memscope_own_memory_read(const struct memscope_own_memory *memory, uintptr_t address, void *into, size_t size) {
    (void)memory, (void)address, (void)into, (void)size;
    return false;
}

void memscope_own_memory_read_each(const struct memscope_own_memory *memory, const uintptr_t *addresses, size_t count,
                                   size_t size, void *into) {
    (void)memory, (void)addresses;
    memset(into, 0, count * size);
}

#endif
