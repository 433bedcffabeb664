/* Fuzzes the parser of /proc/self/statm. */
#include "kernel/process.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct memscope_statm statm;
    char *text = malloc(size + 1);

    memcpy(text, data, size);
    text[size] = '\0';
    memscope_statm_parse(text, &statm);
    free(text);
    return 0;
}
