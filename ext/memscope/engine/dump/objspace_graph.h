/*
 * Makes a heap graph of the lines that were read from a dump (dump/objspace_reader.h): names classes, and resolves
 * references to objects. No GVL, no malloc.
 */
#pragma once

#include "dump/objspace_reader.h"

/*
 * Makes reader->graph and reader->dump, once, after the whole dump was read. Takes half a second for five million
 * objects. Returns MALFORMED if there is no object in the file.
 */
enum memscope_status memscope_objspace_graph_make(struct memscope_objspace_reader *reader);

/* Frees the graph's edges, for a caller that needs only its objects from now on. */
void memscope_objspace_graph_drop_edges(struct memscope_objspace_reader *reader);
