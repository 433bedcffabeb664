/*
 * Reads this process's own memory without being able to fault, and without changing whose its pages are.
 *
 * Other threads may unmap what is about to be read (a trim, a page that GC frees), so foreign structures are
 * never dereferenced: the kernel copies them and says where it could not. process_vm_readv would copy faster, but pins
 * pages, and since Linux 5.19 (earlier in kernels with backports) a pin first copies each page that a process shares
 * with a forked relative. No GVL, no allocation.
 */
#ifndef MEMSCOPE_OWN_MEMORY_H
#define MEMSCOPE_OWN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* /proc/self/mem, or a pipe where this process may not open that: it gave up root without exec. */
struct memscope_own_memory {
    int descriptor;               /* to read from; -1 when neither serves */
    int pipe;                     /* the end to write to, or -1 */
    enum memscope_status refusal; /* why /proc/self/mem does not serve; MEMSCOPE_OK when it does */
};

/* Not MEMSCOPE_OK when neither way works. Close it in any case. */
enum memscope_status memscope_own_memory_open(struct memscope_own_memory *memory);
void memscope_own_memory_close(struct memscope_own_memory *memory);

/* All size bytes or false. A system call and about 0.5 µs a page; twice that through a pipe. */
bool memscope_own_memory_read(const struct memscope_own_memory *memory, uintptr_t address, void *into, size_t size);

/* Copies size bytes from each of count addresses into consecutive elements of into. What cannot be read is zeroed. */
void memscope_own_memory_read_each(const struct memscope_own_memory *memory, const uintptr_t *addresses, size_t count,
                                   size_t size, void *into);

#endif
