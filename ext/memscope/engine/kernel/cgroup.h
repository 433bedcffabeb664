/*
 * The memory cgroup of a process: cgroup v2, v1, v1 alongside v2 (hybrid), or none.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "record_structs.h"

/* Maximum path length, with its NUL. A longer path is MEMSCOPE_TRUNCATED. */
#define MEMSCOPE_CGROUP_PATH 1024

enum memscope_cgroup_version {
    MEMSCOPE_CGROUP_NONE,
    MEMSCOPE_CGROUP_V1,
    MEMSCOPE_CGROUP_HYBRID, /* the memory controller is on v1 though the process is in a v2 group too */
    MEMSCOPE_CGROUP_V2,
};

/*
 * Indexes of memscope_cgroup.figures. lib/memscope/process/cgroup.fields has the place of each in v2 and v1 (from=).
 * Without a key, the file has one number. With a key, the figure is on the line "key number". Without a file, that
 * version has no such figure. Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. v1's total_ keys
 * include descendant groups, as every v2 figure does. The events follow.
 */
#define FIGURE(field, type, v2_file, v2_key, v1_file, v1_key) MEMSCOPE_CGROUP_##field,
#define EVENT(name, v2_file, v2_key, v1_file, v1_key) MEMSCOPE_CGROUP_EVENT_##name,
enum memscope_cgroup_field {
    MEMSCOPE_FIGURES_Cgroup(FIGURE)
#include "kernel/cgroup_events.def"
        MEMSCOPE_CGROUP_FIELDS,
    MEMSCOPE_CGROUP_EVENTS = MEMSCOPE_CGROUP_EVENT_low, /* the first of them */
};
#undef FIGURE

struct memscope_cgroup_figure {
    enum memscope_status status; /* UNSUPPORTED if this cgroup version has no such figure */
    bool unlimited;              /* the limit is "max", or v1's greatest number, so `value` is meaningless */
    uint64_t value;
    const char *file; /* its file, without the directory, NULL when UNSUPPORTED */
};

static inline bool memscope_cgroup_is_known(const struct memscope_cgroup_figure *figure) {
    return figure->status == MEMSCOPE_OK && !figure->unlimited;
}

struct memscope_cgroup_stall {
    double avg10, avg60, avg300; /* percent of the time */
    uint64_t total_us;
};

struct memscope_cgroup_pressure {
    struct memscope_cgroup_stall some, full;
};

/* The CPU time that a group may use, in CPUs. */
struct memscope_cgroup_cpus {
    enum memscope_status status;
    bool unlimited;   /* `count` is then meaningless */
    double count;     /* quota divided by period */
    const char *file; /* its file, without the directory, NULL without a group */
};

struct memscope_cgroup {
    enum memscope_cgroup_version version;
    char path[MEMSCOPE_CGROUP_PATH];            /* as in /proc/PID/cgroup, "" if there is none */
    char directory[MEMSCOPE_CGROUP_PATH];       /* where the files were read, "" if none was found */
    char limit_directory[MEMSCOPE_CGROUP_PATH]; /* of the nearest group that sets limit_bytes, or "" */
    struct memscope_cgroup_figure figures[MEMSCOPE_CGROUP_FIELDS];
    /*
     * working_set: usage minus inactive file pages, which the kernel drops first. Orchestrators compare it with the
     * limit before they evict. headroom: limit minus working set, in two's complement, so negative above the limit.
     * hierarchy_headroom: the minimum headroom of this group and its ancestors, whose limits siblings share. A value
     * that cannot be computed is a copy of the unknown figure that it depends on.
     */
    struct memscope_cgroup_figure working_set, headroom, hierarchy_headroom;
    enum memscope_status pressure_status;
    struct memscope_cgroup_pressure pressure;
    struct memscope_cgroup_figure host_memory; /* MemTotal of the machine: bounds an unlimited group */
    struct memscope_cgroup_cpus cpus;          /* minimum quota up to the root, from v1's separate CPU group */
};

/*
 * `process` is "self" or a pid. proc_root and cgroup_root are "/proc" and "/sys/fs/cgroup", or copies of them. Each of
 * the three limits of v2 (limit, high, swap_limit) is the smallest from the group up to the root of the mount. Reads
 * some 20 small files in 100 to 300 µs: T1. No allocation, no GVL needed. Returns MEMSCOPE_OK when the group's
 * directory was found, else the reason.
 */
enum memscope_status memscope_cgroup_read(const char *process, const char *proc_root, const char *cgroup_root,
                                          struct memscope_cgroup *cgroup);
