/*
 * The input: a byte that locates an FDE in the section (in units of 4 bytes), a byte with the distance into its
 * function, then the .eh_frame section. The seeds come from functions compiled by gcc and clang, and from glibc's
 * signal return.
 */
#include "sampling/unwind_rules.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct memscope_unwind_rule rule) {
    bool by_register = rule.kind == MEMSCOPE_UNWIND_BY_RSP || rule.kind == MEMSCOPE_UNWIND_BY_RBP;

    if ((unsigned)rule.kind > MEMSCOPE_UNWIND_BY_RBP || rule.function != 0)
        abort();
    if (!by_register && (rule.cfa != 0 || rule.rbp != 0))
        abort();
    if (rule.cfa % 8 != 0 || rule.rbp % 8 != 0 || rule.rbp > 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct memscope_range readable;
    uint8_t *section;
    size_t place;

    if (size < 3 || (place = data[0] * 4u) > size - 2)
        return 0;
    size -= 2;
    section = malloc(size); /* a block of its own: the sanitizer poisons the memory around it */
    memcpy(section, data + 2, size);
    readable = (struct memscope_range){(uintptr_t)section, (uintptr_t)section + size};
    check(memscope_unwind_rule_parse(section + place, readable, data[1]));
    check(memscope_unwind_rule_parse(section + place, readable, UINT64_MAX));
    free(section);
    return 0;
}
