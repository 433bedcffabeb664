/* The rings of samples of this process, and the values made of any rings. Users hold the GVL. */
#pragma once

#include "values.h"

#include "trend/history.h"

/* NULL until a history was opened, and empty at first in a forked child. */
struct memscope_rings *memscope_rings_of_this_process(void);

/* The time at which CLOCK_BOOTTIME was 0, in seconds since 1970. */
int64_t memscope_boot_second(void);

/*
 * {started_at:, curves:, events:}, or nil if there is no sample or event. last_at: the time of the last one, in
 * milliseconds since 1970, or NULL if this machine has not booted since.
 */
VALUE memscope_history_of(const struct memscope_rings *rings, const uint64_t *last_at);

/*
 * Writes what a new sample has changed in the rings into the black box of this process, without the GVL, if it has one.
 * Raises interrupts of this thread.
 */
void memscope_black_box_add(const struct memscope_rings *rings);
