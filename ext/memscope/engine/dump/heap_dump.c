#include "dump/heap_dump.h"

/* No slot has fewer bytes, so that this many bytes of two slots never lie in the same place. */
#define SLOT_MIN_SHIFT 5

uint32_t memscope_heap_dump_id(int64_t distance) {
    int64_t places = distance >> SLOT_MIN_SHIFT;

    if (places < -((int64_t)1 << 30) || places >= (int64_t)1 << 30)
        return 0;
    return (uint32_t)(places * 2 + 1);
}

/* As jemalloc's classes: multiples of 16 up to 128, then four for each doubling. */
static uint64_t jemalloc_class(uint64_t bytes) {
    unsigned bits = bytes > 128 ? 63 - (unsigned)__builtin_clzll(bytes - 1) : 6;
    uint64_t step = UINT64_C(1) << (bits - 2);

    return (bytes + step - 1) / step * step;
}

/* As glibc's chunks, which have 8 bytes of their own: what they leave to the block. */
static uint64_t glibc_class(uint64_t bytes) {
    return bytes <= 24 ? 24 : (bytes + 8 + 15) / 16 * 16 - 8;
}

uint64_t memscope_heap_dump_bytes(const struct memscope_heap_dump *dump, uint32_t node) {
    const struct memscope_heap_graph *graph = dump->graph;
    uint64_t bytes = graph->bytes[node], slot = graph->slot_bytes == NULL ? 0 : graph->slot_bytes[node];

    if (bytes <= slot || dump->sizes == MEMSCOPE_SIZES_EXACT)
        return bytes;
    bytes -= slot;
    return slot + (dump->sizes == MEMSCOPE_SIZES_OF_GLIBC ? glibc_class(bytes) : jemalloc_class(bytes));
}

uint32_t memscope_heap_dump_module_name(const struct memscope_heap_dump *dump, uint32_t node) {
    uint32_t low = 0, high = dump->module_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (dump->modules[middle].node < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low < dump->module_count && dump->modules[low].node == node ? dump->modules[low].name : 0;
}
