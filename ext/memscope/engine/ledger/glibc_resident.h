/*
 * The resident part of each of glibc's arenas: malloc_info counts only address space, which a trim does not change.
 *
 * Heaps are found by their heap_info, which points to their arena. malloc_info lists the arenas in the order of glibc's
 * own linked list. The offset of its link in malloc_state differs by version, so it is searched for and checked.
 */
#pragma once

#include "malloc/glibc_info.h"

/*
 * Sets resident_bytes of each arena in the list, and of all together. They stay unknown
 * for an arena that was made or has grown since malloc_info ran, and for all arenas if the kernel hides residency.
 * Walks page tables, like a ledger: 7 to 18 ms per resident GB. No GVL. Allocates only scratch memory.
 */
enum memscope_status memscope_glibc_read_resident(struct memscope_glibc_arenas *arenas);
