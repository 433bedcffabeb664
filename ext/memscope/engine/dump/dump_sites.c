#include "dump/dump_sites.h"

#include "base/mapped_array.h"

enum memscope_status memscope_dump_sites_open(struct memscope_dump_sites *sites,
                                              const struct memscope_objspace_reader *reader, uint32_t top) {
    const uint32_t *site = reader->sites, *bytes = reader->graph.bytes;
    uint32_t names = reader->graph.names.count;

    if (!reader->tells_sites)
        return MEMSCOPE_OK;
    sites->rows = memscope_array_map(names, sizeof *sites->rows);
    if (sites->rows == NULL || memscope_top_rows_open(&sites->largest, top) != MEMSCOPE_OK)
        return MEMSCOPE_NO_MEMORY;
    for (uint32_t node = 0; node < reader->object_count; node++) {
        sites->rows[site[node]].count++;
        sites->rows[site[node]].bytes += bytes[node];
    }
    for (uint32_t name = 1; name < names; name++) {
        sites->rows[name].name = name;
        memscope_top_rows_offer(&sites->largest, sites->rows[name].bytes, name);
    }
    memscope_top_rows_sort(&sites->largest);
    return MEMSCOPE_OK;
}

void memscope_dump_sites_close(struct memscope_dump_sites *sites) {
    memscope_array_unmap(sites->rows);
    sites->rows = NULL;
    memscope_top_rows_close(&sites->largest);
}
