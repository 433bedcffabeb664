/*
 * Names of classes, variables and constants, or any other strings of bytes, each kept once and known by a number. In
 * mapped memory, never in malloc's.
 */
#pragma once

#include "base/keyed_hash.h"
#include "base/shared_room.h"
#include "base/status.h"
#include "base/text.h"

struct memscope_names {
    char *text;       /* all names, one after another */
    uint32_t *starts; /* count + 1 offsets into text */
    uint32_t *table;  /* numbers by hash, open addressing, 0 if none */
    uint32_t count;   /* number 0 is the empty name */
    uint32_t table_mask;
    struct memscope_hash_key key; /* random: a dump may come from anyone, and could make all its names collide */
};

enum memscope_status memscope_names_open(struct memscope_names *names);

/* The number of this name, or 0 (the empty name) if memory, the 2^28 numbers or the 4 GiB of text run out. */
uint32_t memscope_names_add(struct memscope_names *names, const char *text, size_t length);

/* The number of the name before + text + after. A name longer than a thousand bytes loses the end of `text`. */
uint32_t memscope_names_add_composed(struct memscope_names *names, const char *before, struct memscope_text text,
                                     const char *after);

/* The number of this name, or 0 if it is not there. */
uint32_t memscope_names_find(const struct memscope_names *names, const char *text, size_t length);

/* Valid until the next name is added. */
struct memscope_text memscope_names_get(const struct memscope_names *names, uint32_t number);

/* Makes a copy in a shared room. Only memscope_names_get works with it. Do not close it. False if there is no room. */
bool memscope_names_copy(const struct memscope_names *names, struct memscope_shared_room *room,
                         struct memscope_names *copy);

/* Idempotent. Zeroed names are closed. */
void memscope_names_close(struct memscope_names *names);
