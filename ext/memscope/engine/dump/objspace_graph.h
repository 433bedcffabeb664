/*
 * Makes a heap graph of the lines that were read from a dump (dump/objspace_reader.h): names classes, finds the objects
 * that references lead to, and writes edges over the references. No GVL, no malloc.
 */
#ifndef MEMSCOPE_OBJSPACE_GRAPH_H
#define MEMSCOPE_OBJSPACE_GRAPH_H

#include "dump/objspace_reader.h"

/*
 * Makes the graph, once, when the whole dump has been read. Takes half a second for five million objects. What graph
 * and dump point to belongs to the reader. Names may be added to the graph, which must not be moved before the reader
 * is closed. MALFORMED if there is no object in the file.
 */
enum memscope_status memscope_objspace_graph_make(struct memscope_objspace_reader *reader,
                                                  struct memscope_heap_graph *graph, struct memscope_heap_dump *dump);

/* Frees the graph's edges, for a caller that needs only its objects from now on. */
void memscope_objspace_graph_drop_edges(struct memscope_objspace_reader *reader);

#endif
