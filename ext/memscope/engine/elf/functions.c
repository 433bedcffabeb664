#include "elf/functions.h"

#include "base/merge_sort.h"
#include "base/range.h"

#include <string.h>

#define NESTING_LIMIT 16

/* Larger for a better name. The first criterion has the greatest weight. */
static unsigned preference(const struct memscope_function *function) {
    return (function->exported ? 4u : 0u) | (function->name[0] != '_' ? 2u : 0u) | (function->strong ? 1u : 0u);
}

/* Names are compared only if both functions have the same start, which is rare. */
static bool in_order(const void *left_item, const void *right_item) {
    const struct memscope_function *left = left_item, *right = right_item;
    size_t left_length, right_length;

    if (left->start != right->start)
        return left->start < right->start;
    if (preference(left) != preference(right))
        return preference(left) > preference(right);
    left_length = strlen(left->name);
    right_length = strlen(right->name);
    if (left_length != right_length)
        return left_length < right_length;
    return strcmp(left->name, right->name) <= 0;
}

/* Gives the kept function the largest size of any symbol with this start. */
static void keep_size(struct memscope_function *kept, const struct memscope_function *dropped) {
    if (!dropped->sized || (kept->sized && kept->end >= dropped->end))
        return;
    kept->end = dropped->end;
    kept->sized = true;
}

static void keep_first_names(struct memscope_functions *functions) {
    struct memscope_function *list = functions->list;
    size_t kept = 0;

    for (size_t index = 0; index < functions->count; index++) {
        if (kept > 0 && list[kept - 1].start == list[index].start)
            keep_size(&list[kept - 1], &list[index]);
        else
            list[kept++] = list[index];
    }
    functions->count = kept;
}

bool memscope_functions_sort(struct memscope_functions *functions, struct memscope_scratch *scratch) {
    struct memscope_function *list = functions->list, *buffer;
    size_t used = scratch->used;

    buffer = memscope_scratch_take(scratch, functions->count * sizeof *buffer);
    if (buffer == NULL) {
        functions->count = 0;
        return false;
    }
    memscope_merge_sort((char *)list, functions->count, sizeof *list, (char *)buffer, in_order);
    scratch->used = used;
    keep_first_names(functions);
    for (size_t index = 0; index + 1 < functions->count; index++)
        if (!list[index].sized && list[index].end > list[index + 1].start)
            list[index].end = list[index + 1].start;
    return true;
}

static bool starts_by(const void *function, uint64_t address) {
    return ((const struct memscope_function *)function)->start <= address;
}

const struct memscope_function *memscope_functions_find(const struct memscope_functions *functions, uintptr_t address) {
    const struct memscope_function *list = functions->list;
    size_t after = memscope_position(list, functions->count, sizeof *list, address, starts_by);

    for (size_t back = 1; back <= after && back <= NESTING_LIMIT; back++)
        if (address < list[after - back].end)
            return &list[after - back];
    return NULL;
}
