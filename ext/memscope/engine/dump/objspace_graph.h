/*
 * Makes a heap graph of the lines that were read from a dump (dump/objspace_reader.h): names classes, finds references
 * by address, and lets edges overwrite them. No GVL, no malloc.
 */
#ifndef MEMSCOPE_OBJSPACE_GRAPH_H
#define MEMSCOPE_OBJSPACE_GRAPH_H

#include "dump/objspace_reader.h"

/*
 * Makes the graph, once, when all is read: half a second for five million objects. It lies in the reader's memory, and
 * so does what belongs to it in a dump. Names may be added to the graph, which stays where it is until the reader is
 * closed. MALFORMED if there is no object in the file.
 */
enum memscope_status memscope_objspace_graph_make(struct memscope_objspace_reader *reader,
                                                  struct memscope_heap_graph *graph, struct memscope_heap_dump *dump);

/* Frees the graph's edges, when only its objects are needed any more. */
void memscope_objspace_graph_drop_edges(struct memscope_objspace_reader *reader);

#endif
