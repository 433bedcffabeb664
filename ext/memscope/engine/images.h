/*
 * The images of the loaded programs and libraries in memory, and the row under `files` that each belongs to.
 */
#ifndef MEMSCOPE_IMAGES_H
#define MEMSCOPE_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "claims.h"
#include "scratch.h"

struct memscope_image {
    uintptr_t start; /* first and last byte of its segments, rounded to pages */
    uintptr_t end;
    uint32_t row;
};

struct memscope_images {
    struct memscope_image *list; /* in the linker's order */
    size_t count;
};

/*
 * Lists the loaded objects and claims their zeroed segments (.bss), which the kernel shows as anonymous memory.
 *   ruby        the executable, and the object that exports ruby_init
 *   extensions  objects that export Init_ and their own name, as Ruby's loader wants it
 *   c_library   the dynamic linker and the C library's objects
 *   others      everything else
 * Runs under the dynamic linker's lock, allocates scratch only. Claims stay unsettled.
 */
void memscope_images_read(struct memscope_scratch *scratch, struct memscope_claims *claims,
                          struct memscope_images *images);

/* The row of the image that holds address; `others` for a file that is no image. */
enum memscope_row memscope_images_row(const struct memscope_images *images, uintptr_t address);

#endif
