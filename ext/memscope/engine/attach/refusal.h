/*
 * Why a process cannot be attached to, for a person: the name of a text in lib/memscope/remote/copy.words and the
 * arguments that fill it, one line each. Arguments come from the target, so control characters become "?".
 */
#ifndef MEMSCOPE_REFUSAL_H
#define MEMSCOPE_REFUSAL_H

#include <stdbool.h>

struct memscope_refusal {
    char text[512]; /* "" for none */
};

/* Sets the refusal unless there is one already. `arguments` is a format. Returns false, for the caller to return. */
bool memscope_refuse(struct memscope_refusal *refusal, const char *name, const char *arguments, ...)
    __attribute__((format(printf, 3, 4)));

#endif
