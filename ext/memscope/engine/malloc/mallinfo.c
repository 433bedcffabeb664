#include "malloc/mallinfo.h"

/* As in glibc's malloc.h, whose struct mallinfo2 has the same members. NULL before 2.33, and in other C libraries. */
extern __attribute__((weak)) struct memscope_mallinfo mallinfo2(void);

enum memscope_status memscope_mallinfo_read(struct memscope_mallinfo *totals) {
    *totals = mallinfo2 ? mallinfo2() : (struct memscope_mallinfo){0};
    return totals->arena == 0 && totals->hblkhd == 0 ? MEMSCOPE_UNSUPPORTED : MEMSCOPE_OK;
}
