/*
 * The images of the loaded programs and libraries in memory, and the row under `files` that each belongs to.
 */
#ifndef MEMSCOPE_IMAGES_H
#define MEMSCOPE_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/scratch.h"
#include "ledger/claims.h"

struct memscope_image {
    uintptr_t start; /* first and last byte of its segments, rounded to pages */
    uintptr_t end;
    uint32_t row;
};

/* The part of a segment beyond the file's bytes: zeroed data, which the kernel shows as anonymous. */
struct memscope_zeroed_segment {
    uintptr_t start;
    uintptr_t end;
    uint32_t row;
};

/* What glibc exports for debuggers, to find its threads (stacks.h). NULL where it does not. */
struct memscope_thread_symbols {
    const void *linker_state, *used_stacks, *user_stacks, *list_node, *descriptor_size;
};

struct memscope_images {
    struct memscope_image *list; /* in the linker's order */
    size_t count;
    struct memscope_zeroed_segment *zeroed;
    size_t zeroed_count;
    struct memscope_thread_symbols threads;
    uintptr_t c_library_data_start, c_library_data_end; /* writable memory of glibc itself; both 0 elsewhere */
};

/*
 * Lists the loaded objects and the data that later steps need of them.
 *   ruby        the executable, and the object that exports ruby_init
 *   extensions  objects that export Init_ and their own name, as Ruby's loader demands
 *   c_library   the dynamic linker and the C library's objects
 *   others      the rest
 * Holds the dynamic linker's lock, which a child forked meanwhile would inherit locked (glibc 2.36 does not reset it):
 * the caller must keep the process from forking, as a Ruby thread does that holds the GVL. 20 to 100 µs. Allocates
 * scratch only; images is empty when there is none.
 */
void memscope_images_read(struct memscope_scratch *scratch, struct memscope_images *images);

/* Claims the zeroed segments. Claims stay unsettled. */
void memscope_images_claim_zeroed(const struct memscope_images *images, struct memscope_claims *claims);

/* The row of the image that holds address; `others` for a file that is no image. */
enum memscope_row memscope_images_row(const struct memscope_images *images, uintptr_t address);

#endif
