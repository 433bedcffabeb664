/*
 * Files as another process sees them, which may live in a container: nothing that it has written decides where a path
 * leads.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/*
 * True if an absolute path leads to the same file in the process's root directory as in this process's. No link is
 * followed in that directory, and no file is opened for reading. False also before Linux 5.6.
 */
bool memscope_remote_file_is_own(pid_t pid, const char *path);
