/*
 * Sends SIGTERM to one process: the intended process, never another one that has its pid by now. The only function of
 * engine/kernel that does something to another process. And how a process has ended, although its parent reaps it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/*
 * When a process started, in ticks (1 / sysconf(_SC_CLK_TCK) s) since the machine booted: with the pid, the identity of
 * a process. A zombie keeps its start time until it is reaped. MEMSCOPE_NOT_FOUND if there is no such process. No
 * allocation, no GVL needed.
 */
enum memscope_status memscope_process_started(pid_t pid, uint64_t *ticks);

/* Parses the text of /proc/PID/stat. The program's name in it may contain spaces and parentheses. */
enum memscope_status memscope_process_started_parse(const char *text, uint64_t *ticks);

/*
 * Sends SIGTERM to the process with this pid that started at this tick. MEMSCOPE_NOT_FOUND if it has ended, even if
 * another process has its pid. *by_pidfd is the way the signal was sent:
 *
 * - By a pidfd (Linux 5.3): it is opened before the tick is compared, and always refers to one process. If that is not
 *   the intended process, the tick differs, and nothing is sent. If it ends after the comparison, the signal fails.
 * - By the pid, if the kernel has no pidfd_open, or a filter of system calls refuses it. A child's pid is not reused
 *   before its parent has waited for it. So a caller that is the parent must keep its threads from waiting: in Ruby, by
 *   holding the GVL. For any other process, such as a child's child, microseconds are left between comparison and
 *   signal, in which the pid could be reused.
 *
 * No allocation.
 */
enum memscope_status memscope_process_terminate(pid_t pid, uint64_t started, bool *by_pidfd);

/*
 * Returns a pidfd of the process with this pid that started at this tick; -1 if it has ended, or if the kernel knows
 * nothing of the processes of such descriptors (before Linux 6.13).
 */
int memscope_process_hold(pid_t pid, uint64_t started);

/*
 * Whether a held process has ended and been reaped, by whomever; if so, closes the pidfd. *status is that of waitpid,
 * -1 if the kernel does not know it any more (before Linux 6.15). No allocation.
 */
bool memscope_process_ended(int descriptor, int *status);
