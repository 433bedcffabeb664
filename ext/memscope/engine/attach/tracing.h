/*
 * Calls of ptrace, and waits for the threads that they stop. One thread of one process may use them: the tracer, whose
 * signals are all blocked.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The signal of a stop at a system call (PTRACE_O_TRACESYSGOOD), and the event of a stop, 0 for none. */
#define MEMSCOPE_SYSTEM_CALL_STOP (SIGTRAP | 0x80)
#define MEMSCOPE_STOP_EVENT(status) ((status) >> 16)

/* PTRACE_ requests. Returns false on failure, with errno. */
bool memscope_trace(int request, pid_t thread, uintptr_t address, uintptr_t data);

/* The register set NT_… of a stopped thread. *size is the capacity, then the size of the set. */
bool memscope_trace_get_set(pid_t thread, unsigned set, void *values, size_t *size);
bool memscope_trace_put_set(pid_t thread, unsigned set, const void *values, size_t size);

/* CLOCK_MONOTONIC, in nanoseconds. */
uint64_t memscope_trace_now(void);

/*
 * Waits until a thread changes its state. `which` is its id, or -1 for any. Returns its id, 0 once the deadline has
 * passed, and -1 if there is nothing to wait for.
 */
pid_t memscope_trace_wait(pid_t which, int *status, uint64_t deadline_ns);

/* For tests: the tracer ends as by SIGKILL instead of making its `number`th call of ptrace. 0 for never. */
void memscope_trace_die_at(unsigned number);
