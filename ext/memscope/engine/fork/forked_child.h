/*
 * A forked child that reads the memory it was forked with, and answers through a pipe.
 *
 * The child is a stranger to its host. It comes from the bare system call: no atfork handler of any library runs. It
 * sends no SIGCHLD and only a wait for exactly its pid finds it, so no trap and no wait(-1) of the host sees it, and
 * `$?` stays. Before its work it gives every signal its default action, can leave no core, is the first that the kernel
 * kills for memory, runs at low priority, ends with the thread that forked it, and closes every descriptor but its own,
 * so that the host's connections and pipes end when the host closes them. A deadline ends it.
 *
 * Another thread may have held any lock when the process was forked: the work takes memory by mmap (base/scratch.h) and
 * never by malloc, calls no Ruby method, and only reads: nothing is swept, finalised or freed.
 */
#ifndef MEMSCOPE_FORKED_CHILD_H
#define MEMSCOPE_FORKED_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

struct memscope_forked_child {
    pid_t pid;         /* 0: there is none */
    int answer;        /* the pipe's end to read from */
    uint64_t pause_ns; /* what the fork took: the thread stands still, others if they fault or map memory */
    uint64_t cpu_ns;   /* the part of it that the kernel worked, without what others ran meanwhile */
    uint64_t deadline_ns;
};

/* Returns whether the answer is whole; writes it with memscope_forked_child_answer. */
typedef bool memscope_forked_work(void *argument, int answer);

/*
 * Forks; the child does the work and exits. What the work reads must not be MADV_DONTFORK. The caller keeps whatever
 * must not change during the fork from changing, such as the GVL. keep is one more descriptor that stays open in the
 * child, or -1. Milliseconds per gigabyte of resident memory. On failure there is no child: DENIED by seccomp,
 * EXHAUSTED by a limit of processes, NO_MEMORY, UNSUPPORTED.
 */
enum memscope_status memscope_forked_child_start(struct memscope_forked_child *child, memscope_forked_work *work,
                                                 void *argument, int keep, unsigned deadline_ms);

/* In the child: false when the parent reads no more. */
bool memscope_forked_child_answer(int answer, const void *bytes, size_t size);

enum memscope_forked_progress {
    MEMSCOPE_FORKED_ANSWERED,    /* all bytes are there, and the child is reaped */
    MEMSCOPE_FORKED_INTERRUPTED, /* by a signal: call again, with *received as it is */
    MEMSCOPE_FORKED_ENDED,       /* the child ended, or was killed, before its answer was whole; reaped */
    MEMSCOPE_FORKED_TOO_SLOW,    /* the deadline passed */
};

/* Waits for an answer of exactly size bytes. To be called without the GVL. */
enum memscope_forked_progress memscope_forked_child_receive(struct memscope_forked_child *child, void *bytes,
                                                            size_t size, size_t *received);

/* Kills and reaps the child if it still is there, and closes the pipe. Idempotent; a zeroed child has ended. */
void memscope_forked_child_end(struct memscope_forked_child *child);

#endif
