/* What the kernel reads from a program's file at exec. */
#ifndef MEMSCOPE_PROGRAM_H
#define MEMSCOPE_PROGRAM_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/* Room for the longest path of a dynamic linker that the kernel takes (PATH_MAX), with its NUL. */
#define MEMSCOPE_DYNAMIC_LINKER_SIZE 4096

/*
 * Whether the file carries capabilities (capabilities(7)): then the program starts in secure mode for any user but
 * root, and the dynamic linker ignores LD_PRELOAD. A file on a file system without extended attributes has none. Any
 * context.
 */
enum memscope_status memscope_program_capabilities(const char *path, bool *found);

/*
 * The dynamic linker that an ELF file of 32 or 64 bits names (PT_INTERP); "" for a static executable. `linker` has
 * MEMSCOPE_DYNAMIC_LINKER_SIZE bytes, and is valid when the status is MEMSCOPE_OK. Returns MEMSCOPE_MALFORMED for a
 * file that is not a valid ELF file, such as a script. Opens the file, and closes it; any context.
 */
enum memscope_status memscope_program_dynamic_linker(const char *path, char *linker);

#endif
