/*
 * Memscope.tag: names the work (request, job) that the running fiber does.
 */
#ifndef MEMSCOPE_TAGS_H
#define MEMSCOPE_TAGS_H

#include <stddef.h>
#include <stdint.h>

/* The index of the tag of the fiber that this thread runs; 0: none. Inside malloc too, in any thread and state. */
uint32_t memscope_current_tag(void);

/* The index of the tag of this name, 0 for want of memory. From the first call on, tags follow their fibers. GVL. */
uint32_t memscope_tag_of(const char *name, size_t length);

/* Tags the running fiber, or with 0 takes its tag away. GVL, never inside malloc. */
void memscope_set_tag(uint32_t index);

#endif
