/*
 * Indexes in the words of a stack: frames, tags, and names of threads (sampled_stack.h).
 *
 * In tables of a fixed size that grow inside malloc, in any thread and state: without a lock, an allocation or access
 * to an object. Each function says whether it may run there; the others need the GVL.
 */
#ifndef MEMSCOPE_INTERNED_H
#define MEMSCOPE_INTERNED_H

#include "values.h"

/* Maps the tables, once; false for want of memory. Before all below but memscope_intern_tag. With the GVL. */
bool memscope_interned_open(void);

/*
 * Inside malloc, by a thread that may read its frames: an index from 1 on, 0 when there is no room. The frame is pinned
 * from the next marking on, and must not be freed or moved before.
 */
uint32_t memscope_intern_frame(VALUE frame);

/* Inside malloc. From 1 on, also where there is no room: the name of that index is "[overflow]". */
uint32_t memscope_intern_thread_name(const char *text, size_t length);

/* With the GVL, not inside malloc: maps its table where it is the first. As above; 0 for want of memory. */
uint32_t memscope_intern_tag(const char *text, size_t length);

/* Resident bytes of all tables, as the kernel reports them. Once they are open; no GVL. */
size_t memscope_interned_bytes(void);

/* The most that frames can take, as reported to the collector. */
size_t memscope_interned_frames_capacity(void);

/* While the collector marks, when nobody reads frames. */
void memscope_mark_interned_frames(void);

/* Forgets frames and threads' names, but no tags. With the GVL, when nobody interns any. */
void memscope_empty_interned(void);

#endif
