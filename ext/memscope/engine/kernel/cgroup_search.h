/*
 * Finds the cgroup of a process, for one controller, among the mounts in the caller's mount namespace.
 */
#pragma once

#include "kernel/cgroup_text.h"

struct memscope_cgroup_search {
    /*
     * The search. The first three have the same meaning as in memscope_cgroup_read, and controller is "memory" or
     * "cpu".
     */
    const char *proc_root, *process, *cgroup_root;
    const char *controller;

    /* The result. */
    const char *path; /* the process's group in the hierarchy, NULL if it has none */
    bool is_v2;
    bool is_mounted; /* some mount shows the process's group */
    enum memscope_status status;
    char top[MEMSCOPE_CGROUP_PATH]; /* the mount point, which is the highest visible directory */
    char directory[MEMSCOPE_CGROUP_PATH];
};

/* Returns MEMSCOPE_OK when the group's directory was found, else the reason. search->path points into membership. */
enum memscope_status memscope_cgroup_find(struct memscope_cgroup_search *search,
                                          struct memscope_cgroup_membership *membership);

/*
 * Removes the last component of a directory. Returns false, and leaves the directory unchanged, if it is already `top`.
 */
bool memscope_cgroup_climb(char *directory, const char *top);
