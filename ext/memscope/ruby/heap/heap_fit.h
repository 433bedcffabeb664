/*
 * Since Ruby 3.2, compaction moves Arrays, Strings and plain objects, since 3.3 also Hashes, to the slot size that they
 * need now. It adds no pages, so it leaves them in place if that size has no free slot.
 */
#pragma once

#include <ruby.h>
#include <stddef.h>

/* The size cannot be derived from public headers. */
#define MEMSCOPE_UNKNOWN_FIT SIZE_MAX

/*
 * Slot bytes that a live object would need if it were allocated now, 0 if it would keep its slot size. Reads only the
 * object's own slot and, through rb_gc_obj_optimal_size, its shape and encoding.
 */
size_t memscope_fitting_bytes(VALUE object);
