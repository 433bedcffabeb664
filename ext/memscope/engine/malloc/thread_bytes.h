/*
 * Bytes that the calling thread has allocated and freed through malloc since it began, rounded up to size classes:
 * jemalloc's thread.allocated and thread.deallocated.
 */
#pragma once

#include <stdint.h>

#include "base/status.h"

/* The addresses of a thread's counters, valid while it lives. */
struct memscope_thread_bytes {
    const uint64_t *allocated, *freed;
};

/*
 * Finds the counters of the calling thread. Returns MEMSCOPE_UNSUPPORTED unless a jemalloc serves malloc, and
 * MEMSCOPE_NOT_FOUND for a jemalloc without these counters (5.2.1 and earlier without config.stats). Allocates nothing
 * after the first mallctl of the process.
 */
enum memscope_status memscope_thread_bytes_find(struct memscope_thread_bytes *bytes);
