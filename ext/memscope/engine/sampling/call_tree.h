/*
 * Stacks of calls, as nodes of a tree that share their callers, with a count of the users of each: a stack goes when
 * its last user does. In memory of fixed size, the caller's. Any context, one thread at a time.
 *
 * A stack that finds no room is replaced by the stack MEMSCOPE_NO_ROOM, whose only frame is the text of that number.
 */
#ifndef MEMSCOPE_CALL_TREE_H
#define MEMSCOPE_CALL_TREE_H

#include <stdint.h>

#include "sampling/counted_texts.h"

#define MEMSCOPE_CALL_NODES 131072
#define MEMSCOPE_CALL_BUCKETS 65536

struct memscope_call_node {
    uint32_t users;       /* callees and samples */
    uint32_t next;        /* with this hash, or the next free one */
    uint64_t caller : 20; /* node; 0: none */
    uint64_t frame : 16;  /* a text; the node is one of its users */
    uint64_t line : 28;   /* in the frame's file */
};

struct memscope_call_tree {
    struct memscope_call_node nodes[MEMSCOPE_CALL_NODES];
    uint32_t first_by_hash[MEMSCOPE_CALL_BUCKETS];
    uint32_t used, free; /* as of struct memscope_counted_texts */
    uint32_t count;
};

/* To be called on a tree of zeros. */
void memscope_calls_begin(struct memscope_call_tree *tree, struct memscope_counted_texts *texts);

/*
 * The node of a call from this line of this frame. The caller of the function hands over its use of `caller`, and gets
 * one of the result.
 */
uint32_t memscope_call_add(struct memscope_call_tree *tree, struct memscope_counted_texts *texts, uint32_t caller,
                           uint32_t frame, uint32_t line);

/* 0 is ignored. */
void memscope_call_retain(struct memscope_call_tree *tree, uint32_t node);
void memscope_call_release(struct memscope_call_tree *tree, struct memscope_counted_texts *texts, uint32_t node);

#endif
