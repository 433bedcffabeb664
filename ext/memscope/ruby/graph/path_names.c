#include "ruby/graph/asked_graph.h"

#include "ruby/graph/named_references.h"

#include <string.h>

/* ---- classes and modules --------------------------------------------------------------------------------------- */

/*
 * Returns true if paths begin at this class or module. Sets *name to its own name or, for an anonymous class, to "Order
 * (anonymous subclass)". In a dump, *name is 0 for a singleton class, since a dump lacks its owner.
 */
static bool is_namespace(struct memscope_asked_graph *asked, uint32_t node, uint32_t *name) {
    const struct memscope_module_name *described;
    VALUE module;

    if (asked->dump != NULL) {
        described = memscope_heap_dump_module(asked->dump, node);
        *name = described == NULL || described->singleton ? 0 : described->name;
        return described != NULL && described->named;
    }
    module = memscope_object_of(&asked->references, node);
    *name = memscope_name_of_module(&asked->references.class_names, module);
    return memscope_is_named_module(module);
}

void memscope_begin_at_namespaces(struct memscope_asked_graph *asked) {
    struct memscope_heap_graph *graph = &asked->references.graph;

    for (uint32_t node = 0; node < graph->slot_count; node++) {
        uint32_t name;

        if ((graph->type[node] != RUBY_T_CLASS && graph->type[node] != RUBY_T_MODULE) ||
            !memscope_reaches(&asked->paths, node))
            continue;
        if (is_namespace(asked, node, &name))
            asked->paths.parent[node] = memscope_graph_root(graph);
        if (name != 0)
            graph->node_class[node] = name;
    }
}

/* ---- edges ----------------------------------------------------------------------------------------------------- */

struct search {
    VALUE to;
    memscope_edge_name name;
};

static void match(VALUE to, memscope_edge_name name, void *data) {
    struct search *search = data;

    if (to == search->to && search->name == MEMSCOPE_EDGE_INTERNAL)
        search->name = name;
}

static memscope_edge_name name_of_id(struct memscope_asked_graph *asked, enum memscope_edge_kind kind, ID id) {
    return MEMSCOPE_EDGE_NAME(kind, memscope_name_of_id(&asked->references.class_names, id));
}

static memscope_edge_name name_of_global(struct memscope_asked_graph *asked, uint32_t category, VALUE to) {
    const struct memscope_heap_question *question = asked->question;

    if (strcmp(asked->references.graph.categories[category], "global_tbl") != 0)
        return MEMSCOPE_EDGE_INTERNAL;
    for (size_t index = 0; index < question->global_count; index++)
        if (question->globals[index].value == to)
            return name_of_id(asked, MEMSCOPE_EDGE_GLOBAL, question->globals[index].name);
    return MEMSCOPE_EDGE_INTERNAL;
}

static bool is_thread_or_fiber(const struct memscope_asked_graph *asked, uint32_t node) {
    const struct memscope_heap_graph *graph = &asked->references.graph;
    VALUE object;

    if (node >= graph->slot_count || graph->type[node] != MEMSCOPE_TYPE_DATA)
        return false;
    object = memscope_object_of(&asked->references, node);
    return RTYPEDDATA_P(object) && memscope_is_thread_or_fiber(object);
}

/* Fiber-locals are variables of a thread or of its fiber. A thread keeps its thread-locals in a Hash. */
static memscope_edge_name name_of_thread_local(struct memscope_asked_graph *asked, uint32_t from, VALUE to,
                                               memscope_edge_name other) {
    uint32_t owner = asked->references.graph.type[from] == MEMSCOPE_TYPE_HASH ? asked->paths.parent[from] : from;
    const struct memscope_thread_local *local =
        is_thread_or_fiber(asked, owner) ? memscope_thread_local_of(&asked->question->threads, to) : NULL;

    if (local == NULL)
        return other;
    return local->in_code ? name_of_id(asked, MEMSCOPE_EDGE_THREAD, SYM2ID(local->key))
                          : MEMSCOPE_EDGE_NAME(MEMSCOPE_EDGE_THREAD, 0);
}

memscope_edge_name memscope_name_live_edge(void *context, uint32_t from, uint32_t to) {
    struct memscope_asked_graph *asked = context;
    const struct memscope_heap_graph *graph = &asked->references.graph;
    struct search search = {.to = memscope_object_of(&asked->references, to), .name = MEMSCOPE_EDGE_INTERNAL};

    if (from >= graph->slot_count)
        return from == memscope_graph_root(graph) ? MEMSCOPE_EDGE_INTERNAL
                                                  : name_of_global(asked, from - graph->slot_count, search.to);
    memscope_each_named_reference(memscope_object_of(&asked->references, from), match, &asked->references.class_names,
                                  &search);
    return name_of_thread_local(asked, from, search.to, search.name);
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

uint32_t memscope_name_of_node(struct memscope_asked_graph *asked, uint32_t node) {
    struct memscope_heap_graph *graph = &asked->references.graph;
    const char *category;

    if (node < graph->slot_count)
        return graph->node_class[node];
    category = graph->categories[node - graph->slot_count];
    return memscope_names_add(&graph->names, category, strlen(category));
}

static uint32_t thread_at(const struct memscope_asked_graph *asked, uint32_t node) {
    return asked->dump != NULL || node >= asked->references.graph.slot_count
               ? 0
               : memscope_thread_listed(&asked->question->threads, memscope_object_of(&asked->references, node));
}

/* Keys of a Hash do not make paths differ, so the key of a thread-local is that of one path only. */
static memscope_edge_name edge_to(const struct memscope_asked_graph *asked, const struct memscope_path_group *alike,
                                  size_t index) {
    memscope_edge_name edge = alike->steps[index].edge;
    const struct memscope_heap_graph *graph = &asked->references.graph;

    if (MEMSCOPE_EDGE_KIND(edge) != MEMSCOPE_EDGE_THREAD || alike->count == 1 ||
        graph->type[alike->steps[index - 1].last] != MEMSCOPE_TYPE_HASH)
        return edge;
    return MEMSCOPE_EDGE_NAME(MEMSCOPE_EDGE_VALUE, memscope_names_find(&graph->names, "Symbol", 6));
}

struct memscope_step_answer memscope_step_named(struct memscope_asked_graph *asked,
                                                const struct memscope_path_group *alike, size_t index) {
    const struct memscope_path_step *step = &alike->steps[index];

    return (struct memscope_step_answer){.name = memscope_name_of_node(asked, step->node),
                                         .times = step->times,
                                         .edge = edge_to(asked, alike, index),
                                         .thread = alike->count == 1 ? thread_at(asked, step->node) : 0};
}
