/*
 * Samples malloc in any process, whatever serves it, without a restart: replaces the functions that the loaded objects
 * import by ones that count bytes, and remembers the blocks that were sampled until they are freed.
 *
 * What imports nothing is not seen: an allocator linked into a program, what malloc itself maps, a pointer to malloc
 * that was taken before the start. A block sampled here and freed through such a pointer stays, until malloc gives its
 * address out again.
 */
#ifndef MEMSCOPE_IMPORT_SAMPLER_H
#define MEMSCOPE_IMPORT_SAMPLER_H

#include "base/status.h"
#include "sampling/imports.h"
#include "sampling/sample_table.h"
#include "sampling/sampled_stack.h"

/*
 * What start needs, and leaves the sampler as it is: MEMSCOPE_UNSUPPORTED off Linux, with another C library than glibc
 * and on other processors than x86-64 and aarch64; MEMSCOPE_NO_MEMORY.
 */
enum memscope_status memscope_import_sampler_prepare(void);

/*
 * Patches, and samples one byte in rate from then on. As prepare; MEMSCOPE_DENIED where the kernel refuses
 * to make an import writable: nothing is patched then. Not while it runs. Takes the dynamic linker's lock, which forks
 * wait for.
 */
enum memscope_status memscope_import_sampler_start(double rate, memscope_stack_reader reader);

/* Takes the patches back. Blocks stay in the table, as they were, to be read. */
void memscope_import_sampler_stop(void);

/* Patches objects that were loaded since; microseconds where there are none. In any thread. */
void memscope_import_sampler_patch_new(void);

/* Of the sampler that runs, or ran last. */
struct memscope_import_patches memscope_import_sampler_patches(void);

#endif
