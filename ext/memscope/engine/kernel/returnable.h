/*
 * Checks if this process can return pages to the kernel by madvise(MADV_DONTNEED), as glibc and jemalloc do. Neither
 * function changes memory that is in use. No GVL, no allocation.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/*
 * Returns MEMSCOPE_OK unless madvise refuses to return even an unlocked page of this function's own, as in some
 * sandboxes.
 */
enum memscope_status memscope_returnable(void);

/*
 * Returns true if any mapping in [start, end), page-aligned, is locked (mlock, mlockall), so that madvise fails with
 * EINVAL. Calls msync(MS_INVALIDATE), which fails with EBUSY for a locked mapping, and does nothing else in Linux
 * (mm/msync.c).
 */
bool memscope_is_locked(uintptr_t start, uintptr_t end);
