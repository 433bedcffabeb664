/* For any text, either the list is ascending, disjoint and named, or the parser rejects the text. */
#include "kernel/mappings.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define TEXT 100 /* the descriptor of a file in memory */

static struct memscope_scratch list, names;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct memscope_mappings_memory memory = {&list, &names};
    struct memscope_mappings mappings;

    if (list.base == NULL &&
        (memscope_scratch_open(&list) != MEMSCOPE_OK || memscope_scratch_open(&names) != MEMSCOPE_OK ||
         dup2(memfd_create("text", 0), TEXT) != TEXT))
        abort();
    list.used = names.used = 0;
    if (ftruncate(TEXT, 0) != 0 || pwrite(TEXT, data, size, 0) != (ssize_t)size)
        abort();
    if (memscope_mappings_read_file("/proc/self/fd/100", &memory, &mappings) != MEMSCOPE_OK)
        return 0;
    for (size_t index = 0; index < mappings.count; index++) {
        const struct memscope_mapping *mapping = &mappings.list[index];

        if (mapping->start >= mapping->end || (index > 0 && mapping[-1].end > mapping->start) ||
            strlen(mapping->name) > size || memscope_mappings_find(&mappings, mapping->start) != mapping)
            abort();
    }
    return 0;
}
