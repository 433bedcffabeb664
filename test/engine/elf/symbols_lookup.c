/*
 * LIBRARY DEBUG_DIRECTORY REPLACEMENT NAME+OFFSET...: loads the library, replaces its file with REPLACEMENT ("" leaves
 * the file, "-" deletes it), and prints what the engine finds at each address, which is an offset from an exported
 * name. If the only NAME is "all": prints how much CPU time the lookup of 10,000 addresses in the library's code takes,
 * and what is found at each.
 */
#include "../expect.h"
#include "elf/symbols.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ADDRESSES 10000

static void print(struct memscope_symbols *symbols, uintptr_t address) {
    struct memscope_symbol found;

    EXPECT(memscope_symbols_find(symbols, address, &found) == MEMSCOPE_OK);
    printf("%s+%zu %s %s %s\n", found.name == NULL ? "" : found.name, (size_t)found.offset,
           found.complete ? "complete" : "exported", memscope_status_id(found.file), found.object);
}

struct code {
    uintptr_t load_bias, start, size;
};

static int find_code(struct dl_phdr_info *info, size_t size, void *context) {
    struct code *code = context;

    (void)size;
    for (int index = 0; index < info->dlpi_phnum && info->dlpi_addr == code->load_bias; index++) {
        if (info->dlpi_phdr[index].p_type != PT_LOAD || !(info->dlpi_phdr[index].p_flags & PF_X))
            continue;
        code->start = info->dlpi_addr + info->dlpi_phdr[index].p_vaddr;
        code->size = info->dlpi_phdr[index].p_memsz;
    }
    return 0;
}

static void print_all(struct memscope_symbols *symbols, void *library) {
    struct timespec before, after;
    struct memscope_symbol found;
    struct link_map *map;
    struct code code = {0};

    EXPECT(dlinfo(library, RTLD_DI_LINKMAP, &map) == 0);
    code.load_bias = map->l_addr;
    dl_iterate_phdr(find_code, &code);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    for (uintptr_t index = 0; index < ADDRESSES; index++)
        EXPECT(memscope_symbols_find(symbols, code.start + code.size / ADDRESSES * index, &found) == MEMSCOPE_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    printf("%ld\n", (after.tv_sec - before.tv_sec) * 1000000 + (after.tv_nsec - before.tv_nsec) / 1000);
    for (uintptr_t index = 0; index < ADDRESSES; index++) {
        uintptr_t address = code.start + code.size / ADDRESSES * index;

        EXPECT(memscope_symbols_find(symbols, address, &found) == MEMSCOPE_OK);
        printf("%zu %s+%zu\n", (size_t)(address - code.load_bias), found.name == NULL ? "" : found.name,
               (size_t)found.offset);
    }
}

int main(int count, char **arguments) {
    struct memscope_symbols symbols;
    void *library;

    EXPECT(count > 4);
    library = dlopen(arguments[1], RTLD_NOW);
    EXPECT(library != NULL);
    if (strcmp(arguments[3], "-") == 0)
        EXPECT(unlink(arguments[1]) == 0);
    else if (*arguments[3] != '\0')
        EXPECT(rename(arguments[3], arguments[1]) == 0);
    EXPECT(memscope_symbols_open(&symbols) == MEMSCOPE_OK);
    symbols.debug_directory = arguments[2];
    if (strcmp(arguments[4], "all") == 0)
        print_all(&symbols, library);
    for (int index = 4; index < count && strcmp(arguments[4], "all") != 0; index++) {
        const char *name = strtok(arguments[index], "+");
        const char *base = dlsym(library, name);

        EXPECT(base != NULL);
        print(&symbols, (uintptr_t)base + strtoul(strtok(NULL, "+"), NULL, 10));
    }
    memscope_symbols_close(&symbols);
    return 0;
}
