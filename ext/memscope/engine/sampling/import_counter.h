/*
 * Counts every byte that one thread allocates and frees through malloc, with any allocator, by recording blocks as the
 * sampler does (memscope_import_sampler_record). A block counts with malloc_usable_size bytes. Each call takes a few
 * nanoseconds longer, in all threads.
 *
 * The counter does not see memscope's own calls, nor calls that do not go through an import: calls to an allocator
 * linked into the program, calls through a pointer to malloc taken before the start, and calls by the dynamic linker
 * for a library or a thread. Blocks allocated in these ways still count as freed if they are freed through an import.
 *
 * Needs the GVL. Does not run together with the sampler.
 */
#pragma once

#include <stdbool.h>

#include "base/status.h"
#include "malloc/allocator.h"

/*
 * Counts for the calling thread from now on. Fails as memscope_import_sampler_record does, and with
 * MEMSCOPE_NOT_FOUND also if no import could be replaced. On failure, nothing stays replaced.
 */
enum memscope_status memscope_import_counter_start(void);

/* The counters of the calling thread, 0 unless it has started the counter. */
struct memscope_thread_bytes memscope_import_counter_bytes(void);

/* Restores the imports, if the counter runs. May be called in any thread, and in a forked child. */
void memscope_import_counter_stop(void);

bool memscope_import_counter_runs(void);
