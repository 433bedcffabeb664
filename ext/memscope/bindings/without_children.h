/* For bindings that read what is private: no child must share it meanwhile. */
#ifndef MEMSCOPE_WITHOUT_CHILDREN_H
#define MEMSCOPE_WITHOUT_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Lets `read` run without the GVL while no other thread's child lives; waits up to half a second for that. `read`
 * returns whether a child spoilt it (MEMSCOPE_SHARED); then it runs again, up to three times in all. Returns the
 * nanoseconds. GVL held.
 */
uint64_t memscope_without_children(bool (*read)(void *argument), void *argument);

#endif
