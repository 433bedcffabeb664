/*
 * The malloc blocks that an object owns, and that are freed with it.
 *
 * rb_obj_memsize_of has neither the addresses nor the sizes of an object's blocks, and some of that memory is not
 * malloc's. Layouts that no header declares are checked, when first needed, against objects with known content. Nothing
 * is shown for objects of a type whose layout is not recognised.
 */
#pragma once

#include <ruby.h>
#include <stdbool.h>

/* Learns this Ruby's layouts, once. Makes objects. Caller holds the GVL. Call it before a walk and its fork. */
void memscope_object_blocks_learn(void);

typedef void memscope_owned_block(const void *block, void *data);

/*
 * Shows each block of a live object, or of garbage that was not swept yet. A payload shared between Strings or Arrays
 * is shown only with the object that frees it. Returns true if the object owns no other blocks. For a C extension's
 * data, only the block that the data pointer points to is known. Classes, code and open files own more blocks than are
 * shown. Only reads: allocates nothing and runs no Ruby code. Caller holds the GVL, or is the only thread of a forked
 * child.
 */
bool memscope_object_blocks(VALUE object, memscope_owned_block *show, void *data);
