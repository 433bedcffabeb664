/* Strings with the same content, compared by length and a hash whose key is drawn anew for each search. */
#pragma once

#include "record_structs.h"

#include "graph/shortest_paths.h"
#include "ruby/heap/heap_references.h"

/*
 * Finds the contents with the largest duplicates in bytes, in descending order, and sets *count to their number. Covers
 * reachable Strings only, and reads all of their bytes, at 1 to 2 GB/s. Maps 80 to 160 bytes a String while it works.
 * Fails with NO_MEMORY.
 */
enum memscope_status memscope_duplicate_strings_find(const struct memscope_heap_references *references,
                                                     const struct memscope_shortest_paths *paths,
                                                     struct memscope_duplicates *duplicates, uint32_t limit,
                                                     uint32_t *count, struct memscope_string_sums *sums);
