#include "attach/remote_mappings.h"

#include <stdio.h>
#include <string.h>

enum memscope_status memscope_remote_mappings(pid_t pid,
                                              bool (*visit)(const struct memscope_mapping *mapping, void *context),
                                              void *context) {
    struct memscope_scratch list = {0}, names = {0};
    const struct memscope_mappings_memory memory = {&list, &names};
    struct memscope_mappings mappings = {0};
    enum memscope_status status = MEMSCOPE_NO_MEMORY;
    char path[32];

    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    if (memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&names) == MEMSCOPE_OK)
        status = memscope_mappings_read_file(path, &memory, &mappings);
    for (size_t index = 0; status == MEMSCOPE_OK && index < mappings.count; index++)
        if (!visit(&mappings.list[index], context))
            break;
    memscope_scratch_close(&list);
    memscope_scratch_close(&names);
    return status;
}

const char *memscope_remote_mapping_file(const struct memscope_mapping *mapping) {
    const char *slash = strrchr(mapping->name, '/');

    return slash == NULL ? mapping->name : slash + 1;
}
