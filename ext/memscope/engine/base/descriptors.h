/*
 * The file descriptors of readings. A child that the host forks during a reading inherits no descriptor of it: the
 * thread that would close it does not exist there. (close-on-exec concerns programs, not forked children.)
 *
 * An atfork handler closes them, at the only moment when their numbers certainly are theirs. A child that comes from
 * the bare system call (memscope's own, fork/forked_child.h, closes all it does not need) runs no handler and keeps
 * them: later, the program may have closed such a number and have it used again.
 */
#ifndef MEMSCOPE_DESCRIPTORS_H
#define MEMSCOPE_DESCRIPTORS_H

#include <stdbool.h>

/* To be called once, when memscope is loaded: registers the handlers. Until then, children inherit. */
void memscope_descriptors_guard(void);

/* As open and close, pipe2 and memfd_create, with close-on-exec. No allocation, no GVL needed. */
int memscope_descriptor_open(const char *path, int flags);
int memscope_descriptor_of_memory(const char *name);
bool memscope_descriptors_of_pipe(int ends[2]);
void memscope_descriptor_close(int descriptor);

#endif
