/* The highest RSS of this process (VmHWM). Each call takes microseconds, allocates nothing and needs no GVL. */
#pragma once

#include <stdint.h>

#include "base/status.h"

/*
 * Lowers the highest RSS to the current RSS, for everything that reads VmHWM (write "5" to /proc/self/clear_refs,
 * Linux 4.0). Returns MEMSCOPE_NOT_FOUND for a kernel without CONFIG_PROC_PAGE_MONITOR.
 */
enum memscope_status memscope_peak_reset(void);

enum memscope_status memscope_peak_read(uint64_t *bytes);
