/*
 * /proc/self/status and smaps_rollup: the parser returns OK if and only if it sets bits of `found`, each of a known
 * figure and once.
 */
#include "kernel/process.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct memscope_process_memory memory = {.figures = memscope_process_figures_unknown};
    char *text = malloc(size + 1);
    bool found;

    memcpy(text, data, size);
    text[size] = '\0';
    found = memscope_process_memory_parse(text, "smaps_rollup", &memory) == MEMSCOPE_OK;
    found |= memscope_process_memory_parse(text, "status", &memory) == MEMSCOPE_OK;
    if (found != ((memory.found[0] | memory.found[1]) != 0) || (memory.found[0] & memory.found[1]) != 0 ||
        (memory.found[0] | memory.found[1]) >> MEMSCOPE_PROCESS_FIELD_COUNT != 0)
        abort();
    free(text);
    return 0;
}
