/*
 * The loaded object that an address is in, by the lookup of glibc 2.35 and later: it takes no lock, so malloc hooks and
 * signal handlers may call it. A build against older headers finds it in a later C library, too.
 */
#ifndef MEMSCOPE_OBJECT_LOOKUP_H
#define MEMSCOPE_OBJECT_LOOKUP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/range.h"

struct memscope_loaded_object {
    struct memscope_range extent; /* of this segment only, where the object has gaps between segments */
    const uint8_t *unwind_index;  /* its .eh_frame_hdr; NULL: has none */
};

/* Whether this C library has such a lookup. */
bool memscope_object_lookup_possible(void);

/*
 * False for an address in no object, or in one that the dynamic linker is still loading, and where this C library has
 * no lookup.
 */
bool memscope_object_at(uintptr_t address, struct memscope_loaded_object *object);

#endif
