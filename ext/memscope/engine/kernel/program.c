#include "kernel/program.h"

#ifdef __linux__

#include "base/descriptors.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

enum memscope_status memscope_program_capabilities(const char *path, bool *found) {
    *found = getxattr(path, "security.capability", NULL, 0) > 0;
    if (*found || errno == ENODATA || errno == EOPNOTSUPP)
        return MEMSCOPE_OK;
    return memscope_status_of_errno(errno);
}

static bool read_at(int file, uint64_t position, void *into, size_t size) {
    return position <= INT64_MAX && pread(file, into, size, (off_t)position) == (ssize_t)size;
}

/* Reads the fields that locate the program headers, even those of a 32-bit file, into a 64-bit header. */
static bool read_header(int file, Elf64_Ehdr *header) {
    Elf32_Ehdr narrow;

    if (!read_at(file, 0, header->e_ident, EI_NIDENT) || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        return false;
    if (header->e_ident[EI_CLASS] == ELFCLASS64)
        return read_at(file, 0, header, sizeof *header) && header->e_phentsize == sizeof(Elf64_Phdr);
    if (header->e_ident[EI_CLASS] != ELFCLASS32 || !read_at(file, 0, &narrow, sizeof narrow))
        return false;
    header->e_phoff = narrow.e_phoff;
    header->e_phnum = narrow.e_phnum;
    header->e_phentsize = narrow.e_phentsize;
    return narrow.e_phentsize == sizeof(Elf32_Phdr);
}

static bool read_segment(int file, const Elf64_Ehdr *header, unsigned index, Elf64_Phdr *segment) {
    uint64_t position = header->e_phoff + (uint64_t)index * header->e_phentsize;
    Elf32_Phdr narrow;

    if (header->e_ident[EI_CLASS] == ELFCLASS64)
        return read_at(file, position, segment, sizeof *segment);
    if (!read_at(file, position, &narrow, sizeof narrow))
        return false;
    segment->p_type = narrow.p_type;
    segment->p_offset = narrow.p_offset;
    segment->p_filesz = narrow.p_filesz;
    return true;
}

static bool read_dynamic_linker(int file, char *linker) {
    Elf64_Ehdr header;
    Elf64_Phdr segment;

    linker[0] = '\0';
    if (!read_header(file, &header))
        return false;
    for (unsigned index = 0; index < header.e_phnum; index++) {
        if (!read_segment(file, &header, index, &segment))
            return false;
        if (segment.p_type == PT_INTERP)
            return segment.p_filesz > 1 && segment.p_filesz <= MEMSCOPE_DYNAMIC_LINKER_SIZE &&
                   read_at(file, segment.p_offset, linker, segment.p_filesz) && linker[segment.p_filesz - 1] == '\0';
    }
    return true;
}

enum memscope_status memscope_program_dynamic_linker(const char *path, char *linker) {
    enum memscope_status status;
    int file = memscope_descriptor_open(path, O_RDONLY);

    if (file < 0)
        return memscope_status_of_errno(errno);
    status = read_dynamic_linker(file, linker) ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
    memscope_descriptor_close(file);
    return status;
}

#else

enum memscope_status memscope_program_capabilities(const char *path, bool *found) {
    (void)path;
    *found = false;
    return MEMSCOPE_UNSUPPORTED;
}

enum memscope_status memscope_program_dynamic_linker(const char *path, char *linker) {
    (void)path;
    *linker = '\0';
    return MEMSCOPE_UNSUPPORTED;
}

#endif
