/*
 * memscope's own forked children (fork/forked_child.h), and the readings that they would make wrong. While such a child
 * lives, it maps every page of this process, so no page is private. Private and shared pages are therefore read while
 * there is no child, or are unknown. A copy (base/copy.h) is such a child of its original.
 *
 * All functions: any thread, no GVL needed, no allocation, async-signal-safe. A child that the host forks starts anew.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Called right before the fork, and after the child is reaped or the fork has failed. */
void memscope_own_child_started(void);
void memscope_own_child_ended(void);

/* Waits for the end of all children, but no longer than half a second. Returns true if none is left. */
bool memscope_own_children_await(void);

/*
 * Call these before and after a reading of private or shared pages. The end returns MEMSCOPE_SHARED if a child has
 * lived in between, and the reading is wrong.
 */
uint64_t memscope_sharing_reading_begin(void);
enum memscope_status memscope_sharing_reading_end(uint64_t begun);

/* For a thread that is about to fork: waits for the end of such readings, but no longer than half a second. */
void memscope_sharing_readings_await(void);
