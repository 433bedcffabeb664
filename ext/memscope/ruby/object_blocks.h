/*
 * The blocks of malloc's memory that an object owns: those that are freed when it is.
 *
 * What an object says it holds (rb_obj_memsize_of) is neither where it is nor how large the blocks are, and some of it
 * is not malloc's. Layouts that no header gives are checked when the extension is loaded, against objects with known
 * content; where one is not recognised, nothing is shown of objects of that type.
 */
#ifndef MEMSCOPE_OBJECT_BLOCKS_H
#define MEMSCOPE_OBJECT_BLOCKS_H

#include <ruby.h>
#include <stdbool.h>
#include <stddef.h>

/* Called when the extension is loaded: learns this Ruby's layouts. */
void memscope_object_blocks_learn(void);

/* wanted_bytes: what the object needs of the block; 0 where that is not known. */
typedef void memscope_owned_block(const void *block, size_t wanted_bytes, void *data);

/*
 * Shows each block of a live object, or of garbage that was not swept yet; a payload shared between Strings or Arrays
 * once, with the object that frees it. Returns whether these are all: of a C extension's data, only the block that the
 * data pointer points to is known; and classes, code and open files own more than is shown. Only reads: allocates
 * nothing and calls nothing of Ruby. Caller holds the GVL, or is the only thread of a forked child.
 */
bool memscope_object_blocks(VALUE object, memscope_owned_block *show, void *data);

#endif
