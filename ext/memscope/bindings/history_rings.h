/* The rings of samples of this process, for the bindings that read them. Users hold the GVL. */
#ifndef MEMSCOPE_HISTORY_RINGS_H
#define MEMSCOPE_HISTORY_RINGS_H

#include "trend/history.h"

extern const char *const memscope_history_names[MEMSCOPE_HISTORY_SERIES];

/* NULL until a history was opened, and empty at first in a forked child. */
struct memscope_rings *memscope_rings_of_this_process(void);

/* The time at which CLOCK_BOOTTIME was 0, in seconds since 1970. */
int64_t memscope_boot_second(void);

#endif
