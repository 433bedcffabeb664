/*
 * Whether this process can return pages to the kernel by madvise(MADV_DONTNEED), as glibc and jemalloc do. Neither
 * function changes memory that is in use. No GVL, no allocation.
 */
#ifndef MEMSCOPE_RETURNABLE_H
#define MEMSCOPE_RETURNABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/*
 * Returns MEMSCOPE_OK unless madvise refuses to return even an unlocked page of this function's own, as in some
 * sandboxes.
 */
enum memscope_status memscope_returnable(void);

/*
 * Whether any mapping in [start, end), page-aligned, is locked (mlock, mlockall), so that madvise fails with EINVAL.
 * Asks by msync(MS_INVALIDATE), which does nothing else in Linux: EBUSY for a locked mapping (mm/msync.c).
 */
bool memscope_is_locked(uintptr_t start, uintptr_t end);

#endif
