/* Exercises unwind_rules.c on instructions that compilers seldom write. */
#include "../expect.h"
#include "sampling/unwind_rules.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROOM 128
#define SIZE 0x40 /* of the function, in bytes of code */

/* A CIE: code alignment factor 1, data alignment factor -8, return address register 16, relative 4-byte addresses. */
static const uint8_t plain[] = {1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x80 | 16, 1, 0};

struct section {
    uint8_t bytes[ROOM];
    size_t length;
};

static void add_number(struct section *section, uint32_t number) {
    memcpy(section->bytes + section->length, &number, sizeof number);
    section->length += sizeof number;
}

static void add(struct section *section, const uint8_t *bytes, size_t length) {
    memcpy(section->bytes + section->length, bytes, length);
    section->length += length;
}

/* Parses a CIE with these contents, and an FDE with these instructions. */
static struct memscope_unwind_rule parse(const uint8_t *common, size_t common_length, const uint8_t *instructions,
                                         size_t length, uint64_t distance) {
    struct section section = {.length = 0};
    size_t start;

    add_number(&section, (uint32_t)(4 + common_length));
    add_number(&section, 0);
    add(&section, common, common_length);
    start = section.length;
    add_number(&section, (uint32_t)(4 + 8 + 1 + length));
    add_number(&section, (uint32_t)section.length);
    add_number(&section, 0);
    add_number(&section, SIZE);
    add(&section, (const uint8_t *)"", 1);
    add(&section, instructions, length);
    return memscope_unwind_rule_parse(
        section.bytes + start,
        (struct memscope_range){(uintptr_t)section.bytes, (uintptr_t)section.bytes + section.length}, distance);
}

static void expect_rule(struct memscope_unwind_rule rule, enum memscope_unwind_kind kind, int cfa, int rbp) {
    EXPECT(rule.kind == kind && rule.cfa == cfa && rule.rbp == rbp);
}

#define PARSE(distance, ...)                                                                                           \
    parse(plain, sizeof plain, (const uint8_t[]){__VA_ARGS__}, sizeof(const uint8_t[]){__VA_ARGS__}, distance)

static void test_places(void) {
    expect_rule(PARSE(1, 0), MEMSCOPE_UNWIND_BY_RSP, 8, 0);
    expect_rule(PARSE(SIZE, 0), MEMSCOPE_UNWIND_BY_RSP, 8, 0);
    expect_rule(PARSE(SIZE + 1, 0), MEMSCOPE_UNWIND_UNDESCRIBED, 0, 0);
    expect_rule(PARSE(0, 0), MEMSCOPE_UNWIND_OTHER, 0, 0);
    /* The new row begins at offset 4: a call instruction that ends there is still in the row before. */
    expect_rule(PARSE(4, 0x40 | 4, 0x0e, 24), MEMSCOPE_UNWIND_BY_RSP, 8, 0);
    expect_rule(PARSE(5, 0x40 | 4, 0x0e, 24), MEMSCOPE_UNWIND_BY_RSP, 24, 0);
    expect_rule(PARSE(5, 0x02, 4, 0x0e, 24), MEMSCOPE_UNWIND_BY_RSP, 24, 0);
    expect_rule(PARSE(5, 0x03, 4, 0, 0x0e, 24), MEMSCOPE_UNWIND_BY_RSP, 24, 0);
    expect_rule(PARSE(5, 0x04, 4, 0, 0, 0, 0x0e, 24), MEMSCOPE_UNWIND_BY_RSP, 24, 0);
}

static void test_registers(void) {
    expect_rule(PARSE(1, 0x80 | 6, 2), MEMSCOPE_UNWIND_BY_RSP, 8, -16);
    expect_rule(PARSE(1, 0x11, 6, 2), MEMSCOPE_UNWIND_BY_RSP, 8, -16);
    expect_rule(PARSE(1, 0x80 | 6, 2, 0xc0 | 6), MEMSCOPE_UNWIND_BY_RSP, 8, 0);
    expect_rule(PARSE(1, 0x09, 6, 3), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x10, 6, 1, 0), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x10, 3, 1, 0), MEMSCOPE_UNWIND_BY_RSP, 8, 0);
    expect_rule(PARSE(1, 0x07, 16), MEMSCOPE_UNWIND_OUTERMOST, 0, 0);
    expect_rule(PARSE(1, 0x07, 6), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x80 | 16, 2), MEMSCOPE_UNWIND_OTHER, 0, 0);  /* not right below the CFA */
    expect_rule(PARSE(1, 0x11, 6, 0x7f), MEMSCOPE_UNWIND_OTHER, 0, 0); /* above the CFA */
}

/* Only a function that switches stacks needs a rule for rsp. */
static void test_stack_pointer(void) {
    expect_rule(PARSE(1, 0x80 | 7, 2), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x10, 7, 1, 0), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x09, 7, 3), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x80 | 7, 2, 0xc0 | 7), MEMSCOPE_UNWIND_BY_RSP, 8, 0);
    expect_rule(PARSE(1, 0x0a, 0x80 | 7, 2, 0x0b), MEMSCOPE_UNWIND_BY_RSP, 8, 0);
}

static void test_cfa(void) {
    expect_rule(PARSE(1, 0x0c, 6, 16), MEMSCOPE_UNWIND_BY_RBP, 16, 0);
    expect_rule(PARSE(1, 0x0e, 16, 0x0d, 6), MEMSCOPE_UNWIND_BY_RBP, 16, 0);
    expect_rule(PARSE(1, 0x0e, 0x90, 0x01), MEMSCOPE_UNWIND_BY_RSP, 144, 0);
    expect_rule(PARSE(1, 0x2e, 16), MEMSCOPE_UNWIND_BY_RSP, 8, 0);
    expect_rule(PARSE(1, 0x0c, 10, 0), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x0f, 1, 0), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x0f, 1, 0, 0x0c, 7, 32), MEMSCOPE_UNWIND_BY_RSP, 32, 0);
    expect_rule(PARSE(1, 0x0e, 12), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x0a, 0x0e, 32, 0x80 | 6, 2, 0x0b), MEMSCOPE_UNWIND_BY_RSP, 8, 0);
    expect_rule(PARSE(1, 0x0a, 0x0e, 32, 0x0a, 0x0e, 64, 0x0b), MEMSCOPE_UNWIND_BY_RSP, 32, 0);
}

static void test_what_is_not_understood(void) {
    expect_rule(PARSE(1, 0x0b), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x3f), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(PARSE(1, 0x12, 6, 0x7e), MEMSCOPE_UNWIND_OTHER, 0, 0); /* known to DWARF only */
    expect_rule(PARSE(1, 0x0c, 7), MEMSCOPE_UNWIND_OTHER, 0, 0);       /* ends early */
    expect_rule(PARSE(1, 0x0f, 9, 0), MEMSCOPE_UNWIND_OTHER, 0, 0);    /* longer than the rest */
    expect_rule(PARSE(1, 0x0e, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01), MEMSCOPE_UNWIND_OTHER, 0,
                0);
}

#define WITH_COMMON(...)                                                                                               \
    parse((const uint8_t[]){__VA_ARGS__}, sizeof(const uint8_t[]){__VA_ARGS__}, (const uint8_t[]){0}, 1, 1)

static void test_common_parts(void) {
    expect_rule(WITH_COMMON(3, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1), MEMSCOPE_UNWIND_BY_RSP, 8, 0);
    expect_rule(
        WITH_COMMON(1, 'z', 'P', 'L', 'R', 0, 1, 0x78, 16, 7, 0x9b, 1, 2, 3, 4, 0x1b, 0x1b, 0x0c, 7, 8, 0x90, 1),
        MEMSCOPE_UNWIND_BY_RSP, 8, 0);
    expect_rule(WITH_COMMON(1, 'z', 'R', 'S', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1), MEMSCOPE_UNWIND_OTHER, 0,
                0);
    expect_rule(WITH_COMMON(2, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(WITH_COMMON(1, 'e', 'h', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(WITH_COMMON(1, 'z', 'R', 0, 1, 0x78, 30, 1, 0x1b, 0x0c, 7, 8, 0x90, 1), MEMSCOPE_UNWIND_OTHER, 0, 0);
    expect_rule(WITH_COMMON(1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x00, 0x0c, 7, 8, 0x90, 1), MEMSCOPE_UNWIND_OTHER, 0, 0);
}

/* An index whose table would begin where the readable memory ends. */
static void test_index_that_says_too_much(void) {
    const uint8_t header[] = {1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct memscope_loaded_object object = {.extent = {(uintptr_t)pages, (uintptr_t)pages + page}};

    EXPECT(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
    object.unwind_index = memcpy(pages + page - sizeof header, header, sizeof header);
    expect_rule(memscope_unwind_rule_of(&object, (uintptr_t)pages + 16), MEMSCOPE_UNWIND_UNDESCRIBED, 0, 0);
    munmap(pages, 2 * page);
}

int main(void) {
    test_places();
    test_registers();
    test_stack_pointer();
    test_cfa();
    test_what_is_not_understood();
    test_common_parts();
    test_index_that_says_too_much();
    return 0;
}
