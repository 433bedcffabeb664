#include "ruby/graph/duplicate_strings.h"

#include "base/keyed_hash.h"
#include "base/mapped_array.h"
#include "graph/top_rows.h"

#include <ruby/encoding.h>

struct content {
    uint64_t hash; /* of the content, the class and the encoding */
    uint64_t length, bytes;
    uint32_t count, class, largest;
};

struct search {
    const struct memscope_heap_references *references;
    const struct memscope_shortest_paths *paths;
    struct memscope_hash_key key;
    struct content *contents; /* hash table */
    size_t mask;
};

static bool is_wanted(const struct search *search, uint32_t node) {
    return search->references->graph.type[node] == RUBY_T_STRING && memscope_reaches(search->paths, node);
}

static uint64_t hash_of(const struct search *search, VALUE string, uint32_t class) {
    uint64_t hash = memscope_keyed_hash(&search->key, RSTRING_PTR(string), (size_t)RSTRING_LEN(string));

    return hash ^ ((uint64_t) class << 32 | (uint64_t)RB_ENCODING_GET_INLINED(string)) * UINT64_C(0x9e3779b97f4a7c15);
}

static void add(struct search *search, uint32_t node) {
    const struct memscope_heap_graph *graph = &search->references->graph;
    VALUE string = memscope_object_of(search->references, node);
    uint64_t hash = hash_of(search, string, graph->node_class[node]), length = (uint64_t)RSTRING_LEN(string);
    size_t place = (size_t)hash & search->mask;
    struct content *content = &search->contents[place];

    while (content->count != 0 && (content->hash != hash || content->length != length)) {
        place = (place + 1) & search->mask;
        content = &search->contents[place];
    }
    content->hash = hash;
    content->length = length;
    content->class = graph->node_class[node];
    content->bytes += graph->bytes[node];
    content->largest = graph->bytes[node] > content->largest ? graph->bytes[node] : content->largest;
    content->count++;
}

static void sum_up(const struct search *search, struct memscope_top_rows *largest, struct memscope_string_sums *sums) {
    for (size_t place = 0; place <= search->mask; place++) {
        const struct content *content = &search->contents[place];

        if (content->count == 0)
            continue;
        sums->count += content->count;
        sums->bytes += content->bytes;
        sums->duplicate_count += content->count - 1;
        sums->saved_bytes += content->bytes - content->largest;
        if (content->count > 1)
            memscope_top_rows_offer(largest, content->bytes - content->largest, (uint32_t)place);
    }
    memscope_top_rows_sort(largest);
}

enum memscope_status memscope_duplicate_strings_find(const struct memscope_heap_references *references,
                                                     const struct memscope_shortest_paths *paths,
                                                     struct memscope_duplicates *duplicates, uint32_t limit,
                                                     uint32_t *count, struct memscope_string_sums *sums) {
    struct search search = {.references = references, .paths = paths};
    struct memscope_top_rows largest = {0};
    uint32_t slots = references->graph.slot_count;
    size_t strings = 0, size = 1024;

    *count = 0;
    *sums = (struct memscope_string_sums){0};
    for (uint32_t node = 0; node < slots; node++)
        strings += is_wanted(&search, node);
    while (size < strings * 2)
        size *= 2;
    search.mask = size - 1;
    search.contents = memscope_array_map(size, sizeof *search.contents);
    if (search.contents == NULL || memscope_top_rows_open(&largest, limit) != MEMSCOPE_OK) {
        memscope_array_unmap(search.contents);
        return MEMSCOPE_NO_MEMORY;
    }
    memscope_hash_key_draw(&search.key);
    for (uint32_t node = 0; node < slots; node++)
        if (is_wanted(&search, node))
            add(&search, node);
    sum_up(&search, &largest, sums);
    for (; *count < largest.count; ++*count) {
        const struct content *content = &search.contents[largest.items[*count].number];

        duplicates[*count] = (struct memscope_duplicates){.name = content->class,
                                                          .count = content->count,
                                                          .length = content->length,
                                                          .saved_bytes = content->bytes - content->largest};
    }
    memscope_top_rows_close(&largest);
    memscope_array_unmap(search.contents);
    return MEMSCOPE_OK;
}
