/*
 * The memory of another process. Every address comes from that process, so it may be any number: a read or write of
 * memory that is not there fails. Needs the right to trace the process (ptrace(2), PTRACE_MODE_ATTACH). No allocation.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Returns false unless all bytes were copied. */
bool memscope_remote_read(pid_t pid, uint64_t from, void *to, size_t size);
bool memscope_remote_write(pid_t pid, uint64_t to, const void *from, size_t size);

/*
 * Reads a text up to its NUL, or its first capacity - 1 bytes, and ends it with a NUL. Returns false if the first byte
 * cannot be read.
 */
bool memscope_remote_text(pid_t pid, uint64_t from, char *to, size_t capacity);
