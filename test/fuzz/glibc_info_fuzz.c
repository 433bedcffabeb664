/* Fuzzes the parser of malloc_info's text. */
#include "malloc/glibc_info.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct memscope_glibc_arenas *arenas) {
    size_t sizes = 0;

    for (size_t index = 0; index < arenas->count; index++) {
        if (arenas->list[index].first_size != sizes)
            abort();
        sizes += arenas->list[index].size_count;
    }
    if (sizes != arenas->size_count)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct memscope_glibc_arenas arenas;
    struct memscope_scratch list, sizes;

    if (memscope_scratch_open(&list) != MEMSCOPE_OK || memscope_scratch_open(&sizes) != MEMSCOPE_OK)
        return 0;
    if (memscope_glibc_parse_arenas((const char *)data, size, &(struct memscope_glibc_arenas_memory){&list, &sizes},
                                    &arenas) == MEMSCOPE_OK)
        check(&arenas);
    memscope_scratch_close(&list);
    memscope_scratch_close(&sizes);
    return 0;
}
