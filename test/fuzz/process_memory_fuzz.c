/*
 * /proc/self/status and smaps_rollup: the parser returns OK if and only if it sets bits of `present`, and sets known
 * bits only.
 */
#include "kernel/process.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct memscope_process_memory memory = {0};
    char *text = malloc(size + 1);
    bool found;

    memcpy(text, data, size);
    text[size] = '\0';
    found = memscope_process_memory_parse(text, MEMSCOPE_PROCESS_SMAPS_ROLLUP, &memory) == MEMSCOPE_OK;
    found |= memscope_process_memory_parse(text, MEMSCOPE_PROCESS_STATUS, &memory) == MEMSCOPE_OK;
    if (found != (memory.present != 0) || memory.present >> MEMSCOPE_PROCESS_FIELD_COUNT != 0)
        abort();
    free(text);
    return 0;
}
