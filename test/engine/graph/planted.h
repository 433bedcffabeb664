/* Graphs written down by hand, and random ones. */
#ifndef PLANTED_H
#define PLANTED_H

#include "../expect.h"
#include "graph/dominators.h"
#include "graph/graph_builder.h"
#include "graph/shortest_paths.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#define PLANTED_OBJECT 1 /* Ruby's numbers of types */
#define PLANTED_CLASS 2
#define PLANTED_STRING 5
#define PLANTED_ARRAY 7
#define PLANTED_HASH 8

/* A graph with what was found out about it. */
struct planted {
    struct memscope_heap_graph graph;
    struct memscope_shortest_paths paths;
    struct memscope_dominators dominators;
};

static const struct memscope_search_last planted_last = {.category = "machine_context"};

static inline void find_out(struct planted *planted) {
    EXPECT(memscope_shortest_paths_find(&planted->paths, &planted->graph, &planted_last) == MEMSCOPE_OK);
    EXPECT(memscope_dominators_find(&planted->dominators, &planted->graph) == MEMSCOPE_OK);
    EXPECT(planted->dominators.node_count == planted->paths.node_count); /* two searches, in different orders */
}

static inline void uproot(struct planted *planted) {
    memscope_dominators_close(&planted->dominators);
    memscope_shortest_paths_close(&planted->paths);
    memscope_graph_close(&planted->graph);
}

static inline uint8_t planted_type(const char *class_name) {
    static const struct {
        const char *name;
        uint8_t type;
    } types[] = {{"Class", PLANTED_CLASS},
                 {"String", PLANTED_STRING},
                 {"Array", PLANTED_ARRAY},
                 {"Hash", PLANTED_HASH},
                 {"env", 0x1a}};

    for (size_t index = 0; index < sizeof types / sizeof *types; index++)
        if (strcmp(types[index].name, class_name) == 0)
            return types[index].type;
    return PLANTED_OBJECT;
}

/* "12@HANDLERS" is a reference to 12 by the constant of this name, "12" one without a name. */
static inline void plant_reference(struct memscope_graph_builder *builder, const char *text) {
    const char *at = strchr(text, '@');
    memscope_edge_name name = MEMSCOPE_EDGE_INTERNAL;

    if (at != NULL)
        name = MEMSCOPE_EDGE_NAME(MEMSCOPE_EDGE_CONSTANT,
                                  memscope_names_add(&builder->graph->names, at + 1, strlen(at + 1)));
    memscope_graph_to(builder, (uint32_t)strtoul(text, NULL, 10), name);
}

/* Lines of "number class bytes to to …" in order of their numbers, then of "category to to …". */
static inline void plant(struct planted *planted, uint32_t slots, const char *lines) {
    struct memscope_graph_builder builder;
    struct memscope_heap_graph *graph = &planted->graph;
    static char texts[20][2000];
    static int text;
    char *line, *rest = strcpy(texts[text++ % 20], lines), *word, *words;

    memset(planted, 0, sizeof *planted);
    EXPECT(memscope_graph_open(&builder, graph, slots, 0, MEMSCOPE_GRAPH_EDGE_NAMES) == MEMSCOPE_OK);
    while ((line = strtok_r(rest, "\n", &rest)) != NULL) {
        char *first = strtok_r(line, " ", &words);

        if (isdigit((unsigned char)*first)) {
            uint32_t slot = (uint32_t)strtoul(first, NULL, 10);
            const char *class_name = strtok_r(NULL, " ", &words);

            graph->type[slot] = planted_type(class_name);
            graph->node_class[slot] = memscope_names_add(&graph->names, class_name, strlen(class_name));
            graph->bytes[slot] = (uint32_t)strtoul(strtok_r(NULL, " ", &words), NULL, 10);
            memscope_graph_from(&builder, slot);
            while ((word = strtok_r(NULL, " ", &words)) != NULL)
                plant_reference(&builder, word);
        } else {
            while ((word = strtok_r(NULL, " ", &words)) != NULL)
                memscope_graph_root_to(&builder, first, (uint32_t)strtoul(word, NULL, 10));
        }
    }
    EXPECT(memscope_graph_finish(&builder) == MEMSCOPE_OK);
    find_out(planted);
}

/* The number of a class's name. */
static inline uint32_t planted_class(const struct planted *planted, const char *name) {
    return memscope_names_find(&planted->graph.names, name, strlen(name));
}

static inline uint32_t planted_random(uint64_t *state, uint32_t limit) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % limit;
}

/* Some slots are not reached. The seed decides whether edges are few or many, and lead to near slots or to any. */
static inline void plant_random(struct planted *planted, uint32_t slots, uint64_t seed) {
    struct memscope_graph_builder builder;
    struct memscope_heap_graph *graph = &planted->graph;
    uint64_t state = seed;
    uint32_t most = 1 + planted_random(&state, 5), reach = seed % 2 ? slots : 10;

    memset(planted, 0, sizeof *planted);
    EXPECT(memscope_graph_open(&builder, graph, slots, slots, 0) == MEMSCOPE_OK);
    for (uint32_t slot = 0; slot < slots; slot++) {
        if (planted_random(&state, 20) == 0)
            continue;
        graph->type[slot] = PLANTED_OBJECT;
        graph->bytes[slot] = 1 + planted_random(&state, 1000);
        memscope_graph_from(&builder, slot);
        for (uint32_t left = planted_random(&state, most + 1); left > 0; left--)
            memscope_graph_to(&builder, (slot + planted_random(&state, reach)) % slots, MEMSCOPE_EDGE_INTERNAL);
        if (planted_random(&state, 3) == 0)
            memscope_graph_to(&builder, planted_random(&state, slot + 1), MEMSCOPE_EDGE_INTERNAL);
    }
    for (uint32_t left = 1 + planted_random(&state, 5); left > 0; left--)
        memscope_graph_root_to(&builder, left % 2 ? "vm" : "machine_context", planted_random(&state, slots / 2));
    EXPECT(memscope_graph_finish(&builder) == MEMSCOPE_OK);
    find_out(planted);
}

/* A larger graph, written object by object: grow, refer and root, then harvest. */
#define PLANTED_MANY 400000

static struct {
    struct {
        const char *class_name;
        uint32_t bytes, first, last; /* references: their numbers, 0 for none */
    } objects[PLANTED_MANY];
    struct {
        uint32_t to, next;
        const char *name;
        enum memscope_edge_kind kind;
    } references[PLANTED_MANY];
    struct {
        const char *category;
        uint32_t object;
    } roots[PLANTED_MANY / 100];
    uint32_t object_count, reference_count, root_count;
} garden;

static inline uint32_t grow(const char *class_name, uint32_t bytes) {
    EXPECT(garden.object_count < PLANTED_MANY);
    garden.objects[garden.object_count].class_name = class_name;
    garden.objects[garden.object_count].bytes = bytes;
    return garden.object_count++;
}

static inline void refer_by(uint32_t from, uint32_t to, enum memscope_edge_kind kind, const char *name) {
    uint32_t number = ++garden.reference_count;

    EXPECT(number < PLANTED_MANY);
    garden.references[number].to = to;
    garden.references[number].kind = kind;
    garden.references[number].name = name;
    if (garden.objects[from].first == 0)
        garden.objects[from].first = number;
    else
        garden.references[garden.objects[from].last].next = number;
    garden.objects[from].last = number;
}

static inline void refer(uint32_t from, uint32_t to) {
    refer_by(from, to, MEMSCOPE_EDGE_INTERNAL, "");
}

/* A new object that another refers to. */
static inline uint32_t grow_on(uint32_t from, const char *class_name, uint32_t bytes) {
    uint32_t object = grow(class_name, bytes);

    refer(from, object);
    return object;
}

static inline void root_of(const char *category, uint32_t object) {
    garden.roots[garden.root_count].category = category;
    garden.roots[garden.root_count++].object = object;
}

static inline void root(uint32_t object) {
    root_of("vm", object);
}

static inline void harvest(struct planted *planted) {
    struct memscope_graph_builder builder;
    struct memscope_heap_graph *graph = &planted->graph;

    memset(planted, 0, sizeof *planted);
    EXPECT(memscope_graph_open(&builder, graph, garden.object_count, 0, MEMSCOPE_GRAPH_EDGE_NAMES) == MEMSCOPE_OK);
    for (uint32_t slot = 0; slot < garden.object_count; slot++) {
        const char *class_name = garden.objects[slot].class_name;

        graph->type[slot] = planted_type(class_name);
        graph->node_class[slot] = memscope_names_add(&graph->names, class_name, strlen(class_name));
        graph->bytes[slot] = garden.objects[slot].bytes;
        memscope_graph_from(&builder, slot);
        for (uint32_t number = garden.objects[slot].first; number != 0; number = garden.references[number].next) {
            const char *name = garden.references[number].name;
            uint32_t known = memscope_names_add(&graph->names, name, strlen(name));

            memscope_graph_to(&builder, garden.references[number].to,
                              MEMSCOPE_EDGE_NAME(garden.references[number].kind, known));
        }
    }
    for (uint32_t index = 0; index < garden.root_count; index++)
        memscope_graph_root_to(&builder, garden.roots[index].category, garden.roots[index].object);
    EXPECT(memscope_graph_finish(&builder) == MEMSCOPE_OK);
    memset(&garden, 0, sizeof garden);
    find_out(planted);
}

/* A list whose nodes all refer to their class, the last slot, too. */
static inline void plant_list(struct planted *planted, uint32_t nodes) {
    struct memscope_graph_builder builder;
    struct memscope_heap_graph *graph = &planted->graph;

    memset(planted, 0, sizeof *planted);
    EXPECT(memscope_graph_open(&builder, graph, nodes + 1, 2 * nodes, 0) == MEMSCOPE_OK);
    memscope_names_add(&graph->names, "Node", 4);
    memscope_names_add(&graph->names, "Class", 5);
    for (uint32_t slot = 0; slot < nodes; slot++) {
        graph->type[slot] = PLANTED_OBJECT;
        graph->node_class[slot] = 1;
        graph->bytes[slot] = 40;
        memscope_graph_from(&builder, slot);
        memscope_graph_to(&builder, nodes, MEMSCOPE_EDGE_CLASS);
        if (slot + 1 < nodes)
            memscope_graph_to(&builder, slot + 1, MEMSCOPE_EDGE_INTERNAL);
    }
    graph->type[nodes] = PLANTED_CLASS;
    graph->node_class[nodes] = 2;
    graph->bytes[nodes] = 500;
    memscope_graph_root_to(&builder, "vm", 0);
    EXPECT(memscope_graph_finish(&builder) == MEMSCOPE_OK);
    find_out(planted);
}

#endif
