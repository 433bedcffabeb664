/*
 * Finds the loaded object that contains an address, by glibc's _dl_find_object (2.35), which takes no lock, so that
 * malloc hooks and signal handlers may call it. An extension that was built with an older glibc also uses this lookup
 * if it runs with a C library that has it.
 */
#pragma once

#include "base/range.h"

struct memscope_loaded_object {
    struct memscope_range extent; /* the object's, or only this segment's if there are gaps between segments */
    const uint8_t *unwind_index;  /* its .eh_frame_hdr, NULL for none */
};

bool memscope_object_lookup_possible(void);

/*
 * Returns false for an address outside all objects or in one that the dynamic linker is still loading, and if this C
 * library has no lookup.
 */
bool memscope_object_at(uintptr_t address, struct memscope_loaded_object *object);
