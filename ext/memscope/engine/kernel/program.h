/* What the kernel does with a program's file at exec. */
#ifndef MEMSCOPE_PROGRAM_H
#define MEMSCOPE_PROGRAM_H

#include "base/status.h"

#include <stdbool.h>

/*
 * Whether the file carries capabilities (capabilities(7)). For any user but root it then starts in secure mode, in
 * which the dynamic linker ignores LD_PRELOAD. A file system without extended attributes holds none. Any context.
 */
enum memscope_status memscope_program_capabilities(const char *path, bool *found);

#endif
