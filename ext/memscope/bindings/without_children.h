/* For bindings that read private pages, which no child may share at the time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * Runs `read` without the GVL once no other thread's child is alive, after up to half a second. `read` returns true if
 * a child shared the pages (MEMSCOPE_SHARED), and then runs again, up to three times in all. Unless `waits`, runs it
 * once, immediately. Returns the nanoseconds. Caller holds the GVL.
 */
uint64_t memscope_without_children(bool (*read)(void *argument), void *argument, bool waits);
