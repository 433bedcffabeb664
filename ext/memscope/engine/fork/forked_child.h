/*
 * A forked child that reads the memory it was forked with, and answers through a pipe.
 *
 * The host does not notice the child. It is made by the bare system call, so no library's atfork handler runs. Its end
 * sends no SIGCHLD and only a wait with __WALL finds it, so no trap and no wait(-1) of the host sees it, and `$?` keeps
 * its value. Before its work the child resets every signal to its default action, disables core dumps, makes itself the
 * OOM killer's first choice, lowers its priority, and closes every descriptor that it does not need, so that the host's
 * connections and pipes still end when the host closes them. It ends when the thread that forked it ends, and a timer
 * kills it at its deadline. If the host executes another program during its life, that program can reap the child.
 *
 * Another thread may have held any lock at the fork, so the work allocates by mmap (base/scratch.h) and never by
 * malloc, calls no Ruby method, and only reads: no object is swept, finalised or freed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

struct memscope_forked_child {
    pid_t pid;         /* 0 for none */
    int answer;        /* the read end of the pipe */
    uint64_t pause_ns; /* wall time of the fork, which stops this thread, and others if they fault or map memory */
    uint64_t cpu_ns;   /* CPU time of the fork, which is pause_ns without the time in which this thread did not run */
    uint64_t deadline_ns;
};

/* The child's work. It writes its answer with memscope_forked_child_answer, and returns true if it wrote all of it. */
typedef bool memscope_forked_work(void *argument, int answer);

/*
 * Forks a child, which does the work and exits. Memory that the work reads must not be MADV_DONTFORK. The caller holds
 * the locks (such as the GVL) of all data that must not be in the middle of a change at the fork. `keep` is one more
 * descriptor that stays open in the child, or -1. Takes milliseconds per gigabyte of resident memory. On failure there
 * is no child, and the status is MEMSCOPE_DENIED (seccomp), MEMSCOPE_EXHAUSTED (a limit on processes),
 * MEMSCOPE_NO_MEMORY or MEMSCOPE_UNSUPPORTED.
 */
enum memscope_status memscope_forked_child_start(struct memscope_forked_child *child, memscope_forked_work *work,
                                                 void *argument, int keep, unsigned deadline_ms);

/* Called in the child. Returns false if a write fails. */
bool memscope_forked_child_answer(int answer, const void *bytes, size_t size);

/* Waits for children of every kind too: some C libraries do not name it. */
#ifndef __WALL
#define __WALL 0x40000000
#endif

/*
 * Like fork, but the child's end sends no signal, and no library's atfork handlers run. Block all signals: a handler of
 * the host must not run in the child.
 */
pid_t memscope_clone_quietly(void);

/*
 * For a child that was made by the bare system call for other work: resets every signal to its default action, unblocks
 * all, and closes every descriptor but these two.
 */
bool memscope_forked_child_shed(int first, int second);

/* A process whose SIGALRM has its default action ends at the deadline, however it hangs. 0 for never. */
void memscope_forked_child_set_deadline(unsigned deadline_ms);

bool memscope_is_forked_child(void);

/* Called in the child. Returns the maximum so far of its RSS above the RSS that it was forked with, in bytes. */
uint64_t memscope_forked_child_grown_bytes(void);

enum memscope_forked_progress {
    MEMSCOPE_FORKED_ANSWERED,    /* all bytes are there, and the child is reaped */
    MEMSCOPE_FORKED_INTERRUPTED, /* by a signal: call again, with *received unchanged */
    MEMSCOPE_FORKED_ENDED,       /* the child exited or was killed before its answer was complete, and is reaped */
    MEMSCOPE_FORKED_TOO_SLOW,    /* the deadline has passed, and the child may not be reaped yet */
};

/* Waits for an answer of exactly size bytes. *received starts at 0. Call without the GVL. */
enum memscope_forked_progress memscope_forked_child_receive(struct memscope_forked_child *child, void *bytes,
                                                            size_t size, size_t *received);

/* Kills and reaps the child if there still is one, and closes the pipe. Idempotent, also for a zeroed child. */
void memscope_forked_child_end(struct memscope_forked_child *child);
