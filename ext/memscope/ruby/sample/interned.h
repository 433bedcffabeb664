/*
 * The tags and thread names that the words of a stack refer to by index (sampled_stack.h).
 *
 * They are kept in tables of fixed size. An entry is added without a lock, an allocation or access to an object, so
 * that thread names can be added inside malloc, in any thread and state. Unless its comment says otherwise, a function
 * needs the GVL.
 */
#pragma once

#include "values.h"

/*
 * Maps the tables, once. Returns false if there is no memory. Call it with the GVL, before everything below except
 * memscope_intern_tag.
 */
bool memscope_interned_open(void);

/* Runs inside malloc. Returns an index from 1 on or, if there is no room, the index of "[overflow]". */
uint32_t memscope_intern_thread_name(const char *text, size_t length);

/*
 * With the GVL, not inside malloc. The first call maps the tag table. Returns an index as above, or 0 if there is no
 * memory.
 */
uint32_t memscope_intern_tag(const char *text, size_t length);

/* Resident bytes of all tables, as the kernel reports them. The tables must be open. Needs no GVL. */
size_t memscope_interned_bytes(void);

/* Forgets thread names, but not tags. With the GVL, while no thread interns any. */
void memscope_empty_interned(void);
