#include "dump/heap_dump.h"

#include "base/range.h"

void memscope_heap_dump_write(const struct memscope_heap_dump *dump, enum memscope_dump_format format,
                              struct memscope_dump_output *output) {
    static void (*const writers[])(const struct memscope_heap_dump *dump, struct memscope_dump_output *output) = {
        [MEMSCOPE_DUMP_PERFETTO] = memscope_perfetto_write,
        [MEMSCOPE_DUMP_HEAPSNAPSHOT] = memscope_heapsnapshot_write,
        [MEMSCOPE_DUMP_OBJSPACE] = memscope_objspace_write,
    };

    writers[format](dump, output);
}

/* A place has 32 bytes. No slot is smaller, so no two slots begin in one place. */
#define PLACE_SHIFT 5

uint32_t memscope_heap_dump_id(int64_t distance) {
    int64_t place = distance >> PLACE_SHIFT;

    if (place < -((int64_t)1 << 30) || place >= (int64_t)1 << 30)
        return 0;
    return (uint32_t)(place * 2 + 1);
}

uint32_t memscope_heap_dump_id_of(const struct memscope_heap_dump *dump, uint32_t node) {
    return dump->ids == NULL ? node * 2 + 1 : dump->ids[node];
}

/* ---- sizes ----------------------------------------------------------------------------------------------------- */

/* The size of every slot if the dump does not state slot sizes. */
#define SLOT_BEFORE_3_2 40

/* Rounds up to jemalloc's size classes: multiples of 16 up to 128, then four classes for each doubling. */
static uint64_t jemalloc_class(uint64_t bytes) {
    unsigned bits = bytes > 128 ? 63 - (unsigned)__builtin_clzll(bytes - 1) : 6;
    uint64_t step = UINT64_C(1) << (bits - 2);

    return (bytes + step - 1) / step * step;
}

/* Rounds up to the usable size of a chunk, 8 bytes of which are not the block's. */
static uint64_t glibc_class(uint64_t bytes) {
    return bytes <= 24 ? 24 : (bytes + 8 + 15) / 16 * 16 - 8;
}

uint64_t memscope_heap_dump_bytes(const struct memscope_heap_dump *dump, uint32_t node) {
    const struct memscope_heap_graph *graph = dump->graph;
    uint64_t bytes = graph->bytes[node];
    uint64_t slot = graph->slot_bytes == NULL ? SLOT_BEFORE_3_2 : graph->slot_bytes[node];

    if (bytes <= slot || dump->sizes == MEMSCOPE_SIZES_EXACT)
        return bytes;
    bytes -= slot;
    return slot + (dump->sizes == MEMSCOPE_SIZES_OF_GLIBC ? glibc_class(bytes) : jemalloc_class(bytes));
}

/* ---- names ----------------------------------------------------------------------------------------------------- */

const struct memscope_module_name *memscope_heap_dump_module(const struct memscope_heap_dump *dump, uint32_t node) {
    const struct memscope_module_name *list = dump->modules;
    size_t at = memscope_number_position(&list->node, dump->module_count, sizeof *list, node);

    return at < dump->module_count && list[at].node == node ? &list[at] : NULL;
}

uint32_t memscope_heap_dump_compose(const struct memscope_heap_dump *dump, const char *before, uint32_t name,
                                    const char *after) {
    struct memscope_names *names = &dump->graph->names;

    return memscope_names_add_composed(names, before, memscope_names_get(names, name), after);
}

uint32_t memscope_heap_dump_label(const struct memscope_heap_dump *dump, uint32_t node) {
    const struct memscope_module_name *module = NULL;

    if (dump->graph->type[node] == MEMSCOPE_TYPE_CLASS || dump->graph->type[node] == MEMSCOPE_TYPE_MODULE)
        module = memscope_heap_dump_module(dump, node);
    if (module == NULL)
        return dump->graph->node_class[node];
    return memscope_heap_dump_compose(dump, module->singleton ? "Singleton<" : "Class<", module->name, ">");
}
