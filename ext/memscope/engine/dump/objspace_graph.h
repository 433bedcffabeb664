/*
 * Makes a heap graph of the lines that were read from a dump (dump/objspace_reader.h): names classes, and finds the
 * objects that references lead to. No GVL, no malloc.
 */
#ifndef MEMSCOPE_OBJSPACE_GRAPH_H
#define MEMSCOPE_OBJSPACE_GRAPH_H

#include "dump/objspace_reader.h"

/*
 * Makes reader->graph and reader->dump, once, when the whole dump has been read. Takes half a second for five million
 * objects. MALFORMED if there is no object in the file.
 */
enum memscope_status memscope_objspace_graph_make(struct memscope_objspace_reader *reader);

/* Frees the graph's edges, for a caller that needs only its objects from now on. */
void memscope_objspace_graph_drop_edges(struct memscope_objspace_reader *reader);

#endif
