/*
 * The tracer: a small process, outside the target and outside the reader that started it, which makes a private copy of
 * a Ruby process and answers the reader's expressions there, or has the live process evaluate a text. All of its
 * signals are blocked. It ends when the reader closes the socket, or at the deadline, and the copy ends with it.
 *
 * Messages on the socket, in this machine's byte order. To the reader: kind (32 bits), 0 (32 bits), length (64 bits),
 * bytes. From the reader: length (64 bits), an expression; length 0 ends the copy.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

enum memscope_tracer_message {
    MEMSCOPE_TRACER_READY,   /* lines "name=value": the copy is there, or the text has been evaluated */
    MEMSCOPE_TRACER_VALUE,   /* JSON */
    MEMSCOPE_TRACER_REFUSED, /* a refusal's text, and then nothing more */
    MEMSCOPE_TRACER_RAISED,  /* the expression raised: class and message */
    MEMSCOPE_TRACER_ENDED,   /* lines "name=value": what the copy cost */
    MEMSCOPE_TRACER_DUMP,    /* bytes that the expression wrote to the pipe */
};

/* Allows any pause, and needs no room. */
#define MEMSCOPE_TRACER_ANY_PAUSE 60000

struct memscope_tracer_order {
    pid_t pid;               /* the target */
    const char *text;        /* to be evaluated by the live process, or NULL: a copy is made. "" stops nothing */
    const char *thread;      /* the name of the thread that the text creates */
    int extension;           /* a descriptor of the extension for the target's Ruby, which a copy loads */
    const char *ruby;        /* the version that the extension is for: "3.4" */
    unsigned pause_limit_ms; /* refuses a copy that is predicted to stop the target for longer, or has no room */
    unsigned deadline_ms;    /* of the copy */
    bool forward;            /* for tests: always runs on to a safe point */
    unsigned die_at;         /* for tests: see memscope_trace_die_at */
};

/*
 * Starts the tracer. *socket is the reader's end, close-on-exec. The tracer is no child of this process. Allocates
 * nothing with malloc, needs no GVL, takes a fork of this process.
 */
enum memscope_status memscope_tracer_start(const struct memscope_tracer_order *order, int *socket);
