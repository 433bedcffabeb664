#include "malloc/mallinfo.h"

#include <stdlib.h> /* __GLIBC__ */

#ifdef __GLIBC__
#include <malloc.h>
#if __GLIBC_PREREQ(2, 33)
#define HAS_MALLINFO2
#endif
#endif

#ifdef HAS_MALLINFO2

enum memscope_status memscope_mallinfo_read(struct memscope_mallinfo *totals) {
    struct mallinfo2 glibc = mallinfo2();

#define FIELD(name) glibc.name,
    *totals = (struct memscope_mallinfo){MEMSCOPE_MALLINFO_FIELDS(FIELD)};
#undef FIELD
    return totals->arena == 0 && totals->hblkhd == 0 ? MEMSCOPE_UNSUPPORTED : MEMSCOPE_OK;
}

#else

enum memscope_status memscope_mallinfo_read(struct memscope_mallinfo *totals) {
    *totals = (struct memscope_mallinfo){0};
    return MEMSCOPE_UNSUPPORTED;
}

#endif
