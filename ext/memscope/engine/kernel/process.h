/* A process as a whole, as the kernel reports it: statm, status and smaps_rollup of /proc/PID. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct memscope_statm {
    uint64_t size_bytes;     /* virtual */
    uint64_t resident_bytes; /* RSS */
    uint64_t shared_bytes;   /* resident file and shared memory pages */
};

/*
 * One fstat and one pread of a kept descriptor. The descriptor belongs to the process that opened it: a forked child
 * opens its own. If the host has closed the descriptor, and its number now names another file, the function detects
 * this and does not read that file. T0, no allocation, no GVL needed, async-signal-safe, any number of threads at once.
 */
enum memscope_status memscope_statm_read(struct memscope_statm *statm);

/* Indexes of memscope_process_memory.values, one per row of process_memory.def. */
#define FIGURE(field, source, key, unit) MEMSCOPE_PROCESS_##field,
enum memscope_process_field {
#include "kernel/process_memory.def"
    MEMSCOPE_PROCESS_FIELD_COUNT
};

enum memscope_process_source { MEMSCOPE_PROCESS_STATUS, MEMSCOPE_PROCESS_SMAPS_ROLLUP };

/* The file that a field is read from, and the kernel's key for the field in that file. */
enum memscope_process_source memscope_process_source_of(enum memscope_process_field field);
const char *memscope_process_key_of(enum memscope_process_field field);

struct memscope_process_memory {
    uint64_t values[MEMSCOPE_PROCESS_FIELD_COUNT];
    uint64_t present;                  /* 1 << field for each value that was read */
    enum memscope_status status;       /* of reading /proc/PID/status */
    enum memscope_status smaps_rollup; /* of reading /proc/PID/smaps_rollup */
};

static inline bool memscope_process_has(const struct memscope_process_memory *memory,
                                        enum memscope_process_field field) {
    return (memory->present >> field & 1) != 0;
}

/*
 * Reads both files of a process. `process` is "self" or a pid (memscope_name_in_proc). smaps_rollup walks the page
 * tables under mmap_lock (2.5 ms per GB of 4 KiB pages): T2, so call it without the GVL. Allocates nothing. Returns the
 * better of the two files' statuses, which are both in *memory. smaps_rollup is treated as unread if memscope's own
 * child lived during the reading.
 */
enum memscope_status memscope_process_memory_read(const char *process, struct memscope_process_memory *memory);

/* Adds the figures of /proc/PID/status alone to *memory. Takes microseconds. */
enum memscope_status memscope_process_status_read(const char *process, struct memscope_process_memory *memory);

/*
 * The readers' parsers, for NUL-terminated text. They return MEMSCOPE_MALFORMED for a statm without its first three
 * numbers, and for a status or smaps_rollup without any known key.
 */
enum memscope_status memscope_statm_parse(const char *text, struct memscope_statm *statm);
enum memscope_status memscope_process_memory_parse(const char *text, enum memscope_process_source source,
                                                   struct memscope_process_memory *memory);
