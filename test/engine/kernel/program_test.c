#include "../expect.h"
#include "kernel/program.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

static const char path[] = "program_test.file";

static void make_file(void) {
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

    EXPECT(descriptor >= 0);
    close(descriptor);
}

#ifdef __linux__

#include <elf.h>
#include <string.h>
#include <sys/xattr.h>

/* VFS_CAP_REVISION_2 of linux/capability.h with CAP_NET_BIND_SERVICE permitted, little-endian. */
static const unsigned char capability[20] = {0, 0, 0, 2, 0, 4};

static void test_plain_file(void) {
    bool found = true;

    EXPECT(memscope_program_capabilities(path, &found) == MEMSCOPE_OK);
    EXPECT(!found);
}

static void test_capable_file(void) {
    bool found = false;

    if (setxattr(path, "security.capability", capability, sizeof capability, 0) != 0) {
        unlink(path);
        SKIP("no permission to give a file capabilities");
    }
    EXPECT(memscope_program_capabilities(path, &found) == MEMSCOPE_OK);
    EXPECT(found);
}

static void test_no_file(void) {
    bool found = true;

    EXPECT(memscope_program_capabilities("program_test.none", &found) == MEMSCOPE_NOT_FOUND);
    EXPECT(!found);
}

/* 64-bit and 32-bit ELF files: headers that name a dynamic linker, then its path. */
struct wide {
    Elf64_Ehdr header;
    Elf64_Phdr segments[2];
    char linker[16];
};

struct narrow {
    Elf32_Ehdr header;
    Elf32_Phdr segments[2];
    char linker[16];
};

static const struct wide wide = {
    .header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
               .e_phoff = offsetof(struct wide, segments),
               .e_phentsize = sizeof(Elf64_Phdr),
               .e_phnum = 2},
    .segments = {{.p_type = PT_LOAD},
                 {.p_type = PT_INTERP, .p_offset = offsetof(struct wide, linker), .p_filesz = sizeof "/lib/ld.so"}},
    .linker = "/lib/ld.so",
};

static const struct narrow narrow = {
    .header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS32},
               .e_phoff = offsetof(struct narrow, segments),
               .e_phentsize = sizeof(Elf32_Phdr),
               .e_phnum = 2},
    .segments = {{.p_type = PT_LOAD},
                 {.p_type = PT_INTERP, .p_offset = offsetof(struct narrow, linker), .p_filesz = sizeof "/lib/ld.so"}},
    .linker = "/lib/ld.so",
};

static char linker[MEMSCOPE_DYNAMIC_LINKER_SIZE];

static enum memscope_status read_linker(const void *content, size_t size) {
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

    EXPECT(descriptor >= 0);
    EXPECT(write(descriptor, content, size) == (ssize_t)size);
    close(descriptor);
    return memscope_program_dynamic_linker(path, linker);
}

static void test_dynamic_linker(void) {
    EXPECT(read_linker(&wide, sizeof wide) == MEMSCOPE_OK);
    EXPECT(strcmp(linker, "/lib/ld.so") == 0);
    EXPECT(read_linker(&narrow, sizeof narrow) == MEMSCOPE_OK);
    EXPECT(strcmp(linker, "/lib/ld.so") == 0);
}

static void test_static_program(void) {
    struct wide changed = wide;

    changed.segments[1].p_type = PT_NOTE;
    EXPECT(read_linker(&changed, sizeof changed) == MEMSCOPE_OK);
    EXPECT(linker[0] == '\0');
}

static void test_no_program(void) {
    EXPECT(memscope_program_dynamic_linker("program_test.none", linker) == MEMSCOPE_NOT_FOUND);
    EXPECT(memscope_program_dynamic_linker(".", linker) == MEMSCOPE_MALFORMED);
    EXPECT(read_linker("#!/bin/sh\n0123456789", 20) == MEMSCOPE_MALFORMED);
}

/* Files truncated at every position before the end of the path. */
static void test_cut_programs(void) {
    for (size_t size = 0; size < offsetof(struct wide, linker) + sizeof "/lib/ld.so"; size++)
        EXPECT(read_linker(&wide, size) == MEMSCOPE_MALFORMED);
    for (size_t size = 0; size < offsetof(struct narrow, linker) + sizeof "/lib/ld.so"; size++)
        EXPECT(read_linker(&narrow, size) == MEMSCOPE_MALFORMED);
}

static void test_damaged_headers(void) {
    struct wide changed = wide;
    struct narrow other = narrow;

    changed.header.e_ident[EI_CLASS] = 9;
    EXPECT(read_linker(&changed, sizeof changed) == MEMSCOPE_MALFORMED);
    changed = wide;
    changed.header.e_phentsize = 8;
    EXPECT(read_linker(&changed, sizeof changed) == MEMSCOPE_MALFORMED);
    other.header.e_phentsize = sizeof(Elf64_Phdr);
    EXPECT(read_linker(&other, sizeof other) == MEMSCOPE_MALFORMED);
    changed = wide;
    memset(&changed.header.e_phoff, 0xff, sizeof changed.header.e_phoff);
    EXPECT(read_linker(&changed, sizeof changed) == MEMSCOPE_MALFORMED);
    changed = wide;
    changed.header.e_phoff = INT64_MAX;
    EXPECT(read_linker(&changed, sizeof changed) == MEMSCOPE_MALFORMED);
}

static void test_damaged_segments(void) {
    static const uint64_t sizes[] = {0, 1, 5, sizeof linker + 1, UINT64_MAX};
    struct wide changed = wide;

    for (size_t index = 0; index < sizeof sizes / sizeof *sizes; index++) {
        changed.segments[1].p_filesz = sizes[index];
        EXPECT(read_linker(&changed, sizeof changed) == MEMSCOPE_MALFORMED);
    }
    changed = wide;
    changed.segments[1].p_offset = UINT64_MAX - 4;
    EXPECT(read_linker(&changed, sizeof changed) == MEMSCOPE_MALFORMED);
}

int main(void) {
    make_file();
    test_no_file();
    test_plain_file();
    test_dynamic_linker();
    test_static_program();
    test_no_program();
    test_cut_programs();
    test_damaged_headers();
    test_damaged_segments();
    test_capable_file();
    unlink(path);
    return 0;
}

#else

int main(void) {
    char linker[MEMSCOPE_DYNAMIC_LINKER_SIZE];
    bool found = true;

    make_file();
    EXPECT(memscope_program_dynamic_linker(path, linker) == MEMSCOPE_UNSUPPORTED);
    EXPECT(memscope_program_capabilities(path, &found) == MEMSCOPE_UNSUPPORTED);
    EXPECT(!found);
    unlink(path);
    return 0;
}

#endif
