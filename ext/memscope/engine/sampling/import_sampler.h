/*
 * Samples malloc in any process, with any allocator, without a restart: replaces the functions that loaded objects
 * import with functions that count bytes and track each sampled block until it is freed.
 *
 * Calls that do not go through an import are not seen: calls to an allocator linked into the program, calls through a
 * pointer to malloc taken before the start, an allocator's own mmap. A sampled block whose free is not seen stays in
 * the table until malloc reuses its address.
 */
#pragma once

#include "base/status.h"
#include "sampling/imports.h"
#include "sampling/sample_table.h"
#include "sampling/sampled_stack.h"

/*
 * Takes the first steps of start: finds the functions to replace, and maps the table. Returns MEMSCOPE_UNSUPPORTED with
 * a C library other than glibc or a processor other than x86-64 and aarch64, and MEMSCOPE_NO_MEMORY if the table cannot
 * be mapped.
 */
enum memscope_status memscope_import_sampler_prepare(void);

/*
 * Patches the imports, and samples one byte in rate from now on. In another thread that allocated during an earlier run
 * of the sampler, up to the first 16 KiB are not sampled. The sampler must not be running already. Takes the dynamic
 * linker's lock, during which forks in other threads wait.
 *
 * Fails as prepare does, with MEMSCOPE_DENIED if the kernel refuses to make an import writable, or with
 * MEMSCOPE_NOT_FOUND if every block is being recorded, or if another copy of this library has patched the imports. On
 * failure, nothing stays patched.
 */
enum memscope_status memscope_import_sampler_start(double rate, memscope_stack_reader reader);

/*
 * Receives every block, instead of samples. The replacements of malloc and free call these functions, in any thread.
 * They take no lock that is held around malloc, allocate nothing, and leave errno alone.
 */
struct memscope_block_record {
    /* Called after a block was allocated. */
    void (*add)(void *block);
    /* Called before a block is freed or reallocated. Returns its number, 0 if the block is not recorded. */
    uint32_t (*remove)(void *block);
    /* Called after realloc for a block with a number. `block` is the old one if realloc failed. */
    void (*put_back)(void *block, uint32_t number, bool moved);
};

/*
 * Patches the imports, and reports every block that is allocated through them from now on. In another thread that was
 * sampled before, up to the first 16 KiB may be missing. Fails as start does, and with MEMSCOPE_NOT_FOUND also if the
 * sampler is running.
 */
enum memscope_status memscope_import_sampler_record(const struct memscope_block_record *record);

/* Removes the patches. Sampled blocks stay in the table, readable. */
void memscope_import_sampler_stop(void);

/* Patches libraries loaded since the last patching. Takes some 50 ns if there are none. Any thread. */
void memscope_import_sampler_patch_new(void);

/* The patches of the running sampler, or of its last run. */
struct memscope_import_patches memscope_import_sampler_patches(void);
