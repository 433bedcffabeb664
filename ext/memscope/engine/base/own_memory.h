/*
 * Reads this process's own memory in a way that can neither fault nor unshare a copy-on-write page.
 *
 * Other threads may unmap memory that is about to be read (a trim, a page that GC frees), so foreign structures are
 * never dereferenced: the kernel copies them into a memfd, and reports failures. process_vm_readv would pin pages, and
 * since Linux 5.19 (earlier in kernels with backports) pinning first copies each page that is shared with a parent or
 * child. Needs no GVL. Allocates nothing.
 */
#pragma once

#include "base/range.h"
#include "base/status.h"

/*
 * A memfd and its mapping, or /proc/self/mem if the kernel or a sandbox refuses those, or a pipe if that is refused
 * too. For one thread at a time.
 */
struct memscope_own_memory {
    int descriptor;               /* of the memfd, of /proc/self/mem or of the pipe's read end, or -1 */
    int pipe_in;                  /* the pipe's write end, -1 without one */
    const char *window;           /* the memfd, mapped, NULL without one */
    enum memscope_status refusal; /* why there is no memfd, MEMSCOPE_OK when there is */
};

/* Fails if none of the three works. Call memscope_own_memory_close in any case. */
enum memscope_status memscope_own_memory_open(struct memscope_own_memory *memory);
void memscope_own_memory_close(struct memscope_own_memory *memory);

/*
 * Reads all size bytes or returns false. The memfd takes one system call per 64 KiB and twice the time of memcpy,
 * /proc/self/mem four times that of memcpy. The pipe takes two system calls per 64 KiB.
 */
bool memscope_own_memory_read(const struct memscope_own_memory *memory, uintptr_t address, void *into, size_t size);

/* The address range of the window, [0, 0) without one. */
struct memscope_range memscope_own_memory_window(const struct memscope_own_memory *memory);

/*
 * Copies `size` bytes from each of `count` addresses into consecutive elements of `into`. Elements that cannot be read
 * are zeroed.
 */
void memscope_own_memory_read_each(const struct memscope_own_memory *memory, const uintptr_t *addresses, size_t count,
                                   size_t size, void *into);
