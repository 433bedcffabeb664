/*
 * How much of each of glibc's arenas is resident: malloc_info counts address space only, which stays after a trim.
 *
 * Heaps are found by their heap_info. Which arena of malloc_info's list they belong to is known by the order of glibc's
 * own list, which is found, and checked, in the arenas' malloc_state: its place there differs by version.
 */
#ifndef MEMSCOPE_GLIBC_RESIDENT_H
#define MEMSCOPE_GLIBC_RESIDENT_H

#include "malloc/glibc_info.h"

/*
 * Sets resident_bytes of each arena in the list, and of all together; has_resident says for which it is known: not
 * while arenas are being made or grow between malloc_info and this, nor where the kernel shows no single pages.
 * Walks page tables, like a ledger: 7 to 18 ms per resident GB. No GVL; allocates nothing but scratch memory.
 */
enum memscope_status memscope_glibc_read_resident(struct memscope_glibc_arenas *arenas);

#endif
