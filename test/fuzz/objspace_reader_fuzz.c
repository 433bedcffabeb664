/*
 * Whatever a dump says, its graph is valid: edges lead to nodes, names are known, all formats can be written, and the
 * weights of the tops of its growth add up to all that was added.
 */
#include "dump/dump_growth.h"
#include "dump/objspace_graph.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int file = -1, sink = -1;

static void check(const struct memscope_heap_graph *graph) {
    if (graph->first_edge[0] != 0 || graph->first_edge[graph->node_count] != graph->edge_count)
        abort();
    for (uint32_t node = 0; node < graph->node_count; node++)
        if (graph->first_edge[node] > graph->first_edge[node + 1])
            abort();
    for (uint32_t edge = 0; edge < graph->edge_count; edge++)
        if (graph->edges[edge] >= graph->node_count - 1)
            abort();
    for (uint32_t node = 0; node < graph->slot_count; node++)
        if (graph->type[node] == 0 || graph->type[node] > 0x1f || graph->node_class[node] >= graph->names.count)
            abort();
}

static void write_all(const struct memscope_heap_dump *dump) {
    for (int format = MEMSCOPE_DUMP_PERFETTO; format <= MEMSCOPE_DUMP_OBJSPACE; format++) {
        struct memscope_dump_output output;

        if (!memscope_dump_output_open(&output, sink))
            abort();
        memscope_heap_dump_write(dump, (enum memscope_dump_format)format, &output);
        if (!memscope_dump_output_flush(&output))
            abort();
        memscope_dump_output_close(&output);
    }
}

/* Compares a dump with the first half of itself. */
static void check_growth(const struct memscope_objspace_reader *first, struct memscope_objspace_reader *last) {
    struct memscope_dump_growth growth = {.first = first, .last = last};
    const struct memscope_search_last search = {0};
    struct memscope_shortest_paths paths;
    uint32_t slots = last->graph.slot_count, count;
    uint32_t *nodes = calloc(slots, sizeof *nodes);
    uint64_t *weights = calloc(slots, sizeof *weights), sum = 0;
    enum memscope_status status = memscope_dump_growth_open(&growth);

    if (status == MEMSCOPE_OK) {
        if (memscope_shortest_paths_find(&paths, &last->graph, &search) != MEMSCOPE_OK ||
            memscope_dump_growth_count(&growth, &paths) != MEMSCOPE_OK)
            abort();
        count = memscope_dump_growth_tops(&growth, &paths, nodes, weights);
        for (uint32_t index = 0; index < count; index++)
            sum += weights[index];
        if (sum != growth.added.bytes || growth.added.count + growth.garbage.count > slots)
            abort();
        memscope_shortest_paths_close(&paths);
    } else if (status != MEMSCOPE_NOT_FOUND) {
        abort();
    }
    memscope_dump_growth_close(&growth);
    free(nodes);
    free(weights);
}

static enum memscope_status read_all(struct memscope_objspace_reader *reader, const uint8_t *data, size_t size) {
    if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size || lseek(file, 0, SEEK_SET) != 0 ||
        memscope_objspace_reader_open(reader, file) != MEMSCOPE_OK)
        abort();
    reader->is_compared = reader->is_converted = true;
    while (memscope_objspace_reader_continue(reader))
        continue;
    return memscope_objspace_graph_make(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct memscope_objspace_reader reader, half;

    if (file < 0) {
        file = memfd_create("dump", 0);
        sink = open("/dev/null", O_WRONLY);
    }
    if (read_all(&reader, data, size) == MEMSCOPE_OK) {
        check(&reader.graph);
        write_all(&reader.dump);
        if (read_all(&half, data, size / 2) == MEMSCOPE_OK)
            check_growth(&half, &reader);
        memscope_objspace_reader_close(&half);
    }
    memscope_objspace_reader_close(&reader);
    return 0;
}
