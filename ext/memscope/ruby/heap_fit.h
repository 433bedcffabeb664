/*
 * Since 3.2 compaction moves Arrays, Strings, Hashes and plain objects to the slot size that they would need now, and
 * leaves them in place when no slot of that size is free; it never makes one.
 */
#ifndef MEMSCOPE_HEAP_FIT_H
#define MEMSCOPE_HEAP_FIT_H

#include <ruby.h>
#include <stddef.h>

/* The size cannot be derived from public headers. */
#define MEMSCOPE_UNKNOWN_FIT SIZE_MAX

/*
 * How many bytes of a slot a live object would take if it were made now; 0 when it keeps the slot size that it has.
 * Reads the object's own slot only.
 */
size_t memscope_fitting_bytes(VALUE object);

#endif
