#include "sampling/call_tree.h"

#define LAST_LINE ((1u << 28) - 1)

_Static_assert(MEMSCOPE_CALL_NODES <= 1 << 20, "numbers of nodes have 20 bits");

static uint32_t *bucket_of(struct memscope_call_tree *tree, uint32_t caller, uint32_t frame, uint32_t line) {
    uint64_t hash = ((uint64_t)caller << 32 | frame) * UINT64_C(0x9E3779B97F4A7C15) + line;

    hash = (hash ^ hash >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return &tree->first_by_hash[(hash >> 32) & (MEMSCOPE_CALL_BUCKETS - 1)];
}

static uint32_t take_node(struct memscope_call_tree *tree) {
    uint32_t node = tree->free;

    if (node != 0)
        tree->free = tree->nodes[node].next;
    else if (tree->used < MEMSCOPE_CALL_NODES - 1)
        node = ++tree->used;
    return node;
}

uint32_t memscope_call_add(struct memscope_call_tree *tree, struct memscope_counted_texts *texts, uint32_t caller,
                           uint32_t frame, uint32_t line) {
    uint32_t *bucket, node;

    line = line < LAST_LINE ? line : LAST_LINE;
    bucket = bucket_of(tree, caller, frame, line);
    for (node = *bucket; node != 0; node = tree->nodes[node].next) {
        struct memscope_call_node *known = &tree->nodes[node];

        if (known->caller == caller && known->frame == frame && known->line == line) {
            known->users++;
            memscope_call_release(tree, texts, caller); /* the node already holds a reference to its caller */
            return node;
        }
    }
    node = take_node(tree);
    if (node == 0) {
        memscope_call_release(tree, texts, caller);
        memscope_call_retain(tree, MEMSCOPE_NO_ROOM);
        return MEMSCOPE_NO_ROOM;
    }
    memscope_text_retain(texts, frame);
    tree->nodes[node] =
        (struct memscope_call_node){.frame = frame, .line = line, .caller = caller, .users = 1, .next = *bucket};
    tree->count++;
    return *bucket = node;
}

void memscope_calls_begin(struct memscope_call_tree *tree, struct memscope_counted_texts *texts) {
    memscope_call_add(tree, texts, 0, MEMSCOPE_NO_ROOM, 0);
}

void memscope_call_retain(struct memscope_call_tree *tree, uint32_t node) {
    if (node != 0)
        tree->nodes[node].users++;
}

static void drop(struct memscope_call_tree *tree, uint32_t node) {
    struct memscope_call_node *dropped = &tree->nodes[node];
    uint32_t *link = bucket_of(tree, dropped->caller, dropped->frame, dropped->line);

    while (*link != node)
        link = &tree->nodes[*link].next;
    *link = dropped->next;
    dropped->next = tree->free;
    tree->free = node;
    tree->count--;
}

void memscope_call_release(struct memscope_call_tree *tree, struct memscope_counted_texts *texts, uint32_t node) {
    while (node != 0 && --tree->nodes[node].users == 0) {
        uint32_t caller = tree->nodes[node].caller;

        memscope_text_release(texts, tree->nodes[node].frame);
        drop(tree, node);
        node = caller;
    }
}
