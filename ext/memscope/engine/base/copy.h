/*
 * A copy: a forked child that memscope makes of another process from outside (engine/attach/), so that readings change
 * nothing in that process, which is the copy's original. A copy has the memory of its original as it was at the fork,
 * but only one thread: for Ruby the others exist, for the kernel they do not. So nothing in a copy may wait for another
 * thread. A copy never releases the GVL, and forks no children of its own.
 *
 * The kernel copies no page tables of files. So a reading in a copy takes its files of /proc from the original, and the
 * contents of memory from the copy itself.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* For a new copy, before its first reading. `original` is the pid of its parent. */
void memscope_copy_become(pid_t original);

bool memscope_is_copy(void);

/* The name in /proc of a process, which is "self" or a pid. In a copy, "self" means the original. */
const char *memscope_name_in_proc(const char *process);

/*
 * Writes the path of a file in /proc about the process that readings are about: this one or, in a copy, the original.
 * `name` is short, such as "maps". Returns path. Async-signal-safe.
 */
#define MEMSCOPE_PROC_PATH 64
const char *memscope_path_in_proc(char path[MEMSCOPE_PROC_PATH], const char *name);

/* What memscope_copy_evaluate (bindings/copy_binding.c) tells the tracer, which reads it out of the copy's memory. */
struct memscope_copy_answer {
    uint64_t bytes; /* address, 0 if there was no memory */
    uint64_t length;
    uint64_t raised; /* 1 if the bytes are an exception's class and message, 0 if they are the value as JSON */
};
