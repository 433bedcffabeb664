/*
 * LIBRARY: loads the library, reads addresses in its code from standard input (hexadecimal, as in the file), and prints
 * for each how the engine steps from there to the caller, in readelf's notation.
 */
#include "../expect.h"
#include "sampling/unwind_rules.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

static void print(struct memscope_unwind_rule rule) {
    static const char *const names[] = {[MEMSCOPE_UNWIND_UNDESCRIBED] = "undescribed",
                                        [MEMSCOPE_UNWIND_OTHER] = "other",
                                        [MEMSCOPE_UNWIND_OUTERMOST] = "outermost",
                                        [MEMSCOPE_UNWIND_BY_RSP] = "rsp",
                                        [MEMSCOPE_UNWIND_BY_RBP] = "rbp"};

    if (rule.kind < MEMSCOPE_UNWIND_BY_RSP)
        printf("%s\n", names[rule.kind]);
    else if (rule.rbp == 0)
        printf("%s+%d u\n", names[rule.kind], rule.cfa);
    else
        printf("%s+%d c%d\n", names[rule.kind], rule.cfa, rule.rbp);
}

int main(int count, char **arguments) {
    struct memscope_loaded_object object;
    struct link_map *map;
    char line[32];
    void *library;

    EXPECT(count == 2);
    library = dlopen(arguments[1], RTLD_NOW);
    EXPECT(library != NULL && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0);
    while (fgets(line, sizeof line, stdin)) {
        uintptr_t address = map->l_addr + strtoul(line, NULL, 16);

        if (!memscope_object_at(address - 1, &object) || !object.unwind_index) {
            puts("no object");
            continue;
        }
        EXPECT(object.extent.start < address && address <= object.extent.end);
        print(memscope_unwind_rule_of(&object, address));
    }
    return 0;
}
