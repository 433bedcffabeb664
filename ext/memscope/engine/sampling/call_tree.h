/*
 * Call stacks as a tree, in which stacks with the same outer frames share nodes. Each node counts its users and is
 * freed when the last user releases it. The caller provides the memory, whose size is fixed. Any context, one thread at
 * a time.
 *
 * The node MEMSCOPE_NO_ROOM stands for each stack that finds no room: its only frame is the text MEMSCOPE_NO_ROOM.
 */
#pragma once

#include "sampling/counted_texts.h"

#define MEMSCOPE_CALL_NODES 131072
#define MEMSCOPE_CALL_BUCKETS 65536

struct memscope_call_node {
    uint32_t users;       /* callees, samples, and groups that are being read */
    uint32_t next;        /* next node in the bucket, or next free node */
    uint64_t caller : 20; /* a node, 0 if none */
    uint64_t frame : 16;  /* a text, of which the node is a user */
    uint64_t line : 28;   /* in the frame's file */
};

struct memscope_call_tree {
    struct memscope_call_node nodes[MEMSCOPE_CALL_NODES];
    uint32_t first_by_hash[MEMSCOPE_CALL_BUCKETS];
    uint32_t used, free; /* as in struct memscope_counted_texts */
    uint32_t count;
};

/* The tree must be all zeros. */
void memscope_calls_begin(struct memscope_call_tree *tree, struct memscope_counted_texts *texts);

/*
 * Returns the node for a call from this line of this frame, whose caller is the node `caller`. Consumes one reference
 * to `caller`, and returns one to the result.
 */
uint32_t memscope_call_add(struct memscope_call_tree *tree, struct memscope_counted_texts *texts, uint32_t caller,
                           uint32_t frame, uint32_t line);

/* Both ignore node 0. */
void memscope_call_retain(struct memscope_call_tree *tree, uint32_t node);
void memscope_call_release(struct memscope_call_tree *tree, struct memscope_counted_texts *texts, uint32_t node);
