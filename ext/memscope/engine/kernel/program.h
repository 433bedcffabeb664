/* What the kernel does with a program's file at exec. */
#ifndef MEMSCOPE_PROGRAM_H
#define MEMSCOPE_PROGRAM_H

#include "base/status.h"

#include <stdbool.h>

/*
 * Whether the file carries capabilities (capabilities(7)): then the program starts in secure mode for any user but
 * root, and the dynamic linker ignores LD_PRELOAD. A file on a file system without extended attributes has none. Any
 * context.
 */
enum memscope_status memscope_program_capabilities(const char *path, bool *found);

#endif
