/* A process as a whole, as the kernel reports it: statm, status and smaps_rollup of /proc/PID. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "record_structs.h"

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

/* The figures that the kernel prints (from= in lib/memscope/process/process_memory.fields), in that order. */
#define FIGURE(field, type, file, key, other_file, other_key) MEMSCOPE_PROCESS_##field,
enum memscope_process_field { MEMSCOPE_FIGURES_ProcessMemory(FIGURE) MEMSCOPE_PROCESS_FIELD_COUNT };
#undef FIGURE

/* Where a figure is, by preference: a file in /proc/PID, and the kernel's key there. NULL without a second place. */
extern const struct memscope_process_places {
    const char *name;
    size_t offset; /* in struct memscope_process_figures */
    bool in_kib;
    struct {
        const char *file, *key;
    } places[2];
} memscope_process_places[MEMSCOPE_PROCESS_FIELD_COUNT];

struct memscope_process_memory {
    struct memscope_process_figures figures;
    uint64_t found[2];                 /* by place, 1 << field for each figure that was read there */
    enum memscope_status status;       /* of reading /proc/PID/status */
    enum memscope_status smaps_rollup; /* of reading /proc/PID/smaps_rollup */
};

/*
 * Reads both files of a process. `process` is "self" or a pid (memscope_name_in_proc). smaps_rollup walks the page
 * tables under mmap_lock (2.5 ms per GB of 4 KiB pages): T2, so call it without the GVL. Allocates nothing. Returns the
 * better of the two files' statuses, which are both in *memory. smaps_rollup is treated as unread if memscope's own
 * child lived during the reading.
 */
enum memscope_status memscope_process_memory_read(const char *process, struct memscope_process_memory *memory);

/* Reads the figures of /proc/PID/status alone. Takes microseconds. */
enum memscope_status memscope_process_status_read(const char *process, struct memscope_process_memory *memory);

/*
 * The readers' parsers, for NUL-terminated text. They return MEMSCOPE_MALFORMED for a statm without its first three
 * numbers, and for a status or smaps_rollup without any known key. A figure that is known already stays.
 */
enum memscope_status memscope_statm_parse(const char *text, struct memscope_statm *statm);
enum memscope_status memscope_process_memory_parse(const char *text, const char *file,
                                                   struct memscope_process_memory *memory);

/*
 * Lowers the highest RSS (VmHWM) of this process to the current RSS, for everything that reads it (write "5" to
 * /proc/self/clear_refs, Linux 4.0). Returns MEMSCOPE_NOT_FOUND for a kernel without CONFIG_PROC_PAGE_MONITOR. Like the
 * reading, takes microseconds.
 */
enum memscope_status memscope_peak_reset(void);
enum memscope_status memscope_peak_read(uint64_t *bytes);
