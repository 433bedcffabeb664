/* Where in its code a thread of another process is, for a person. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MEMSCOPE_PLACE_BYTES 160

/*
 * Writes "qsort_r (libc.so.6)", or "libruby.so+0x1234" where the object exports no such function: most are static. Code
 * without a file is "generated code".
 */
void memscope_remote_place(pid_t pid, uint64_t address, char *text, size_t capacity);
