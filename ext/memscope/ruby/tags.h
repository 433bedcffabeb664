/*
 * Memscope.tag: names the work (request, job) that the running fiber does.
 */
#ifndef MEMSCOPE_TAGS_H
#define MEMSCOPE_TAGS_H

#include <stddef.h>
#include <stdint.h>

/* Index of the running fiber's tag; 0 if it has none. May run inside malloc, in any thread and state. */
uint32_t memscope_current_tag(void);

/* Index of the tag of this name; 0 if there is no memory. From the first call on, tags follow fibers. With the GVL. */
uint32_t memscope_tag_of(const char *name, size_t length);

/* Tags the running fiber; 0 removes its tag. With the GVL, never inside malloc. */
void memscope_set_tag(uint32_t index);

#endif
