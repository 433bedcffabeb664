/*
 * Reads this process's own memory without being able to fault.
 *
 * Other threads may unmap what is about to be read (a trim, a page that GC gives back), so foreign structures are
 * never dereferenced: the kernel copies them (process_vm_readv on ourselves, else /proc/self/mem) and says where it
 * could not. Neither needs privileges: the kernel lets a thread group look at itself. No GVL, no allocation.
 */
#ifndef MEMSCOPE_OWN_MEMORY_H
#define MEMSCOPE_OWN_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Which of the two ways works here, tried once per reading. */
struct memscope_own_memory {
    int descriptor; /* of /proc/self/mem, or -1 when process_vm_readv serves */
};

/* MEMSCOPE_DENIED or MEMSCOPE_UNSUPPORTED when neither way works. Close it in any case. */
enum memscope_status memscope_own_memory_open(struct memscope_own_memory *memory);
void memscope_own_memory_close(struct memscope_own_memory *memory);

/* All size bytes or false. */
bool memscope_own_memory_read(const struct memscope_own_memory *memory, uintptr_t address, void *into, size_t size);

/*
 * Copies size bytes from each of count addresses into consecutive elements of into, in as few system calls as it
 * takes. An element that could not be read is zeroed.
 */
void memscope_own_memory_read_each(const struct memscope_own_memory *memory, const uintptr_t *addresses, size_t count,
                                   size_t size, void *into);

#endif
