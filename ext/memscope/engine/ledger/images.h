/*
 * The images of the loaded programs and libraries in memory, each with its row under `files`.
 */
#pragma once

#include "base/range.h"
#include "base/scratch.h"
#include "ledger/claims.h"

struct memscope_image {
    struct memscope_range pages; /* all of its segments, or one that is zeroed, rounded out to whole pages */
    uint32_t row;
    bool zeroed; /* a segment past the file's bytes: bss, which the kernel shows as anonymous */
};

/* Symbols that glibc exports so that debuggers can find its threads (stacks.h), NULL if it does not export them. */
struct memscope_thread_symbols {
    const void *linker_state, *used_stacks, *user_stacks, *list_node, *descriptor_size;
};

struct memscope_images {
    struct memscope_image *list; /* in the linker's order, each followed by its zeroed segments */
    size_t count;
    struct memscope_thread_symbols threads;
    uintptr_t c_library_data_start, c_library_data_end; /* glibc's own writable segment, both 0 without glibc */
};

/*
 * Lists the loaded objects, each with its row, and the facts about them that later steps need.
 *   ruby        the executable, and the object that exports ruby_init
 *   extensions  objects that export Init_<their own name>, as Ruby's loader requires
 *   c_library   the dynamic linker and the C library's objects
 *   others      the rest
 * Takes the dynamic linker's lock, which a child forked at that time would inherit locked (glibc 2.36 does not reset
 * it), so the caller must prevent forks, for example by holding the GVL. 20 to 100 µs. Allocates only scratch memory.
 * `images` is incomplete if scratch runs out.
 */
void memscope_images_read(struct memscope_scratch *scratch, struct memscope_images *images);

/* Claims the zeroed segments. Claims stay unsettled. */
void memscope_images_claim_zeroed(const struct memscope_images *images, struct memscope_claims *claims);

/* The row of the image that holds address, or `others` for a file that is not an image. */
enum memscope_row memscope_images_row(const struct memscope_images *images, uintptr_t address);
