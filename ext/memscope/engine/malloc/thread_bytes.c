#include "malloc/thread_bytes.h"

#include "malloc/allocator.h"
#include "malloc/jemalloc.h"

enum memscope_status memscope_thread_bytes_find(struct memscope_thread_bytes *bytes) {
    enum memscope_status status;

    if (memscope_allocator_current()->name != MEMSCOPE_ALLOCATOR_JEMALLOC)
        return MEMSCOPE_UNSUPPORTED;
    status = memscope_jemalloc_read("thread.allocatedp", &bytes->allocated, sizeof bytes->allocated);
    if (status != MEMSCOPE_OK)
        return status;
    return memscope_jemalloc_read("thread.deallocatedp", &bytes->freed, sizeof bytes->freed);
}
