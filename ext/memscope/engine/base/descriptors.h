/*
 * The file descriptors of readings. A child that the host forks during a reading keeps none of the reading's
 * descriptors: the thread that would close them does not exist there. (Close-on-exec takes effect at exec, not at
 * fork.)
 *
 * An atfork handler closes them in the child right after the fork, while their numbers certainly still refer to them. A
 * child made by the bare system call runs no handler and keeps them: when memscope first runs there, the program may
 * have closed such a number and reused it. (memscope's own child, fork/forked_child.h, closes all descriptors that it
 * does not need.)
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Registers the atfork handlers. Call it once, when memscope is loaded. Children forked earlier inherit descriptors. */
void memscope_descriptors_guard(void);

/*
 * Like open (a new file has mode 0600), memfd_create, pidfd_open, pipe2 and close, with close-on-exec set. No
 * allocation, no GVL needed.
 */
int memscope_descriptor_open(const char *path, int flags);
int memscope_descriptor_of_memory(const char *name);
int memscope_descriptor_of_process(pid_t pid);
bool memscope_descriptors_of_pipe(int ends[2]);
void memscope_descriptor_close(int descriptor);

/*
 * RLIMIT_FSIZE in bytes, UINT64_MAX if there is no limit. A write beyond it, even to a memfd, ends the process with
 * SIGXFSZ.
 */
uint64_t memscope_file_size_limit(void);
