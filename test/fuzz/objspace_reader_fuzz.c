/* Whatever a dump says, its graph is one: edges lead to nodes, names are known, and all formats can be written. */
#include "dump/objspace_reader.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct memscope_objspace_reader reader;
    struct memscope_heap_graph graph;
    struct memscope_heap_dump dump;

    if (file < 0) {
        file = memfd_create("dump", 0);
        sink = open("/dev/null", O_WRONLY);
    }
    if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size || lseek(file, 0, SEEK_SET) != 0 ||
        memscope_objspace_reader_open(&reader, file) != MEMSCOPE_OK)
        abort();
    while (memscope_objspace_reader_continue(&reader))
        continue;
    if (memscope_objspace_reader_graph(&reader, &graph, &dump) == MEMSCOPE_OK) {
        check(&graph);
        write_all(&dump);
    }
    memscope_objspace_reader_close(&reader);
    return 0;
}
