/*
 * Why a process cannot be attached to, for a person: the name of a text in lib/memscope/remote/copy.words, the process
 * and the other arguments that fill it, one line each. Arguments come from the target, so control characters become
 * "?".
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct memscope_refusal {
    pid_t pid;
    char text[512]; /* "" for none */
};

/* Set the refusal unless there is one already. `arguments` is a format. Return false, for the caller to return. */
bool memscope_refuse(struct memscope_refusal *refusal, const char *name);
bool memscope_refuse_for(struct memscope_refusal *refusal, const char *name, const char *arguments, ...)
    __attribute__((format(printf, 3, 4)));
