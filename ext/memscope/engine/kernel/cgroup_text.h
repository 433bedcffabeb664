/* Parsers for the kernel's files on cgroups, as NUL-terminated text. No allocation, no system call. */
#pragma once

#include "kernel/cgroup.h"

/* Bytes for any of the files: memory.stat, the longest, has some 70 lines. */
#define MEMSCOPE_CGROUP_TEXT 8192

struct memscope_cgroup_membership {
    bool has_v1, has_v2;
    char v1_path[MEMSCOPE_CGROUP_PATH]; /* of the hierarchy that has the controller */
    char v2_path[MEMSCOPE_CGROUP_PATH];
};

/* Parses /proc/PID/cgroup for one controller, "memory" or "cpu". */
enum memscope_status memscope_cgroup_parse_membership(const char *text, const char *controller,
                                                      struct memscope_cgroup_membership *membership);

struct memscope_cgroup_mount {
    bool is_v2; /* else v1 with the controller */
    char root[MEMSCOPE_CGROUP_PATH];
    char point[MEMSCOPE_CGROUP_PATH];
};

/* Parses a line of /proc/self/mountinfo. Returns false unless it mounts a hierarchy that can have the controller. */
bool memscope_cgroup_parse_mount(const char *line, const char *controller, struct memscope_cgroup_mount *mount);

/* Sets `status`, `unlimited` and `value`. If `key` is NULL, the text is one number or "max". */
void memscope_cgroup_parse_figure(const char *text, const char *key, struct memscope_cgroup_figure *figure);

/*
 * Parses "quota period" as in cpu.max, both in µs. With "max" and v1's "-1" there is no quota. Sets `status`,
 * `unlimited` and `count`.
 */
void memscope_cgroup_parse_quota(const char *text, struct memscope_cgroup_cpus *cpus);

/* Parses memory.pressure. */
enum memscope_status memscope_cgroup_parse_pressure(const char *text, struct memscope_cgroup_pressure *pressure);
