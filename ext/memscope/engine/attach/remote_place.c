#include "attach/remote_place.h"

#include "attach/remote_mappings.h"
#include "attach/remote_module.h"

#include <stdio.h>

#define NAME_BYTES 64

struct search {
    uint64_t address, start; /* of the object's first mapping */
    uint64_t inode;
    char file[NAME_BYTES];
    bool found;
};

static bool look_at(const struct memscope_mapping *mapping, void *context) {
    struct search *search = context;

    if (mapping->inode != search->inode || search->start == 0) {
        search->inode = mapping->inode;
        search->start = mapping->start;
    }
    search->found = mapping->start <= search->address && search->address < mapping->end;
    if (search->found)
        snprintf(search->file, sizeof search->file, "%s", memscope_remote_mapping_file(mapping));
    return !search->found;
}

void memscope_remote_place(pid_t pid, uint64_t address, char *text, size_t capacity) {
    struct search search = {.address = address};
    struct memscope_remote_module module;
    char name[NAME_BYTES];

    memscope_remote_mappings(pid, look_at, &search);
    if (!search.found || search.file[0] == '\0')
        snprintf(text, capacity, "generated code");
    else if (memscope_remote_module_read(pid, search.start, &module) &&
             memscope_remote_module_function_at(&module, address, name, sizeof name))
        snprintf(text, capacity, "%s (%s)", name, search.file);
    else
        snprintf(text, capacity, "%s+0x%llx", search.file, (unsigned long long)(address - search.start));
}
