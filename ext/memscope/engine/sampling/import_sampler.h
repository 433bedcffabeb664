/*
 * Samples malloc in any process, whatever serves it, without a restart: replaces the functions that loaded objects
 * import by functions that count bytes and track each sampled block until it is freed.
 *
 * Calls that are not imports go unseen: an allocator linked into a program, malloc's own mappings, a pointer to malloc
 * taken before the start. A block sampled here and freed through such a pointer stays until malloc reuses its address.
 */
#ifndef MEMSCOPE_IMPORT_SAMPLER_H
#define MEMSCOPE_IMPORT_SAMPLER_H

#include "base/status.h"
#include "sampling/imports.h"
#include "sampling/sample_table.h"
#include "sampling/sampled_stack.h"

/*
 * Prepares start without starting: MEMSCOPE_UNSUPPORTED off Linux, with a C library other than glibc, and on processors
 * other than x86-64 and aarch64; MEMSCOPE_NO_MEMORY.
 */
enum memscope_status memscope_import_sampler_prepare(void);

/*
 * Patches, and samples one byte in rate from now on. As prepare; MEMSCOPE_DENIED where the kernel refuses to make an
 * import writable: then nothing is patched. Must not run already. Takes the dynamic linker's lock, which forks wait
 * for.
 */
enum memscope_status memscope_import_sampler_start(double rate, memscope_stack_reader reader);

/* Removes the patches. Sampled blocks stay in the table, readable. */
void memscope_import_sampler_stop(void);

/* Patches objects that were loaded since; microseconds where there are none. In any thread. */
void memscope_import_sampler_patch_new(void);

/* Of the running sampler, or the last one. */
struct memscope_import_patches memscope_import_sampler_patches(void);

#endif
