/*
 * Functions and build-ids in ELF files and in loaded images, read without trust: whatever the bytes, there is no access
 * out of bounds, and the limits in elf_reading.c bound the work.
 *
 * For 64-bit objects of this processor, and defined on x86-64 and aarch64 only. No malloc, no lock, no GVL needed.
 */
#pragma once

#include "base/status.h"
#include "elf/functions.h"
#include "elf/shared_objects.h"

/* A source of bytes. Positions are offsets in a file, addresses in a loaded image. */
struct memscope_elf_source {
    bool (*read)(const void *context, uint64_t position, void *into, size_t size); /* all size bytes, or false */
    const void *context;
};

struct memscope_elf_file {
    struct memscope_elf_source source;
    const void *headers; /* Elf64_Phdr[header_count], in scratch, as the sections are */
    size_t header_count;
    const void *sections; /* Elf64_Shdr[section_count] */
    size_t section_count;
};

struct memscope_build_id {
    size_t size; /* 0 for none */
    unsigned char bytes[64];
};

/*
 * Reads the headers of a file. Returns MEMSCOPE_UNSUPPORTED for an ELF file of another class, machine or type,
 * MEMSCOPE_MALFORMED for anything but an ELF file with complete headers, and MEMSCOPE_NO_MEMORY if scratch is too
 * small. `file` is empty unless the status is MEMSCOPE_OK.
 */
enum memscope_status memscope_elf_read_file(const struct memscope_elf_source *source, struct memscope_scratch *scratch,
                                            struct memscope_elf_file *file);

/* Both return MEMSCOPE_NOT_FOUND, and an empty build_id, if there is none. */
enum memscope_status memscope_elf_file_build_id(const struct memscope_elf_file *file,
                                                struct memscope_build_id *build_id);
enum memscope_status memscope_elf_image_build_id(const struct memscope_elf_source *source,
                                                 const struct memscope_shared_object *object,
                                                 struct memscope_build_id *build_id);

/*
 * Returns true if the file's code belongs at the addresses where the object's code is loaded, since the program headers
 * are equal. If the build-ids are known to be equal, only the addresses of executable segments need to be equal (a
 * separate debug file has its own offsets and sizes).
 */
bool memscope_elf_same_layout(const struct memscope_elf_file *file, const struct memscope_shared_object *object,
                              bool same_build_id);

/*
 * Lists and sorts the functions in .symtab, at the addresses where object is loaded. Returns MEMSCOPE_NOT_FOUND if the
 * file is stripped. `functions` is empty unless the status is MEMSCOPE_OK. The names are in scratch.
 */
enum memscope_status memscope_elf_file_functions(const struct memscope_elf_file *file,
                                                 const struct memscope_shared_object *object,
                                                 struct memscope_scratch *scratch,
                                                 struct memscope_functions *functions);

/*
 * Does the same for the exported functions in the .dynsym of a loaded image. With the image's own file, unsized
 * functions end with their section. With an empty file, they end with their segment.
 */
enum memscope_status memscope_elf_image_functions(const struct memscope_elf_source *source,
                                                  const struct memscope_elf_file *file,
                                                  const struct memscope_shared_object *object,
                                                  struct memscope_scratch *scratch,
                                                  struct memscope_functions *functions);
