/*
 * The loaded object that an address is in, as the C library finds it since glibc 2.35: without a lock, so that it may
 * be asked inside malloc and in signal handlers. What is built with older headers asks a later C library too.
 */
#ifndef MEMSCOPE_OBJECT_LOOKUP_H
#define MEMSCOPE_OBJECT_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/range.h"

struct memscope_loaded_object {
    struct memscope_range extent; /* of the segment alone that the address is in, where there are gaps between them */
    const uint8_t *unwind_index;  /* its .eh_frame_hdr; NULL: has none */
};

/* Whether this C library has such a lookup. */
bool memscope_object_lookup_possible(void);

/* False where address is in no object that the dynamic linker has done with, and where there is no lookup. */
bool memscope_object_at(uintptr_t address, struct memscope_loaded_object *object);

#endif
