/*
 * A loaded ELF object of another process, read out of that process's memory: no file is opened, so the object may be in
 * a container, deleted or replaced. All that is read is untrusted: counts and offsets are bounded, and a name is
 * compared, never copied. 64-bit objects of this machine's byte order only. No allocation.
 */
#pragma once

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct memscope_remote_module {
    pid_t pid;
    uint64_t bias; /* added to an address in the file */
    uint64_t symbols, names, gnu_hash;
    uint64_t relocations, relocation_bytes;
    uint16_t machine;
};

/* Reads the object whose header is at `start`. Returns false if there is none with a table of dynamic symbols. */
bool memscope_remote_module_read(pid_t pid, uint64_t start, struct memscope_remote_module *module);

/* Finds a defined dynamic symbol. */
bool memscope_remote_module_find(const struct memscope_remote_module *module, const char *name, Elf64_Sym *symbol);

/* Its address, or 0. */
uint64_t memscope_remote_module_address(const struct memscope_remote_module *module, const char *name);

/*
 * Writes the name of the exported function that an address lies in, with "?" for what is no part of a name. Returns
 * false if there is none.
 */
bool memscope_remote_module_function_at(const struct memscope_remote_module *module, uint64_t address, char *name,
                                        size_t capacity);
