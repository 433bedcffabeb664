#include "kernel/returnable.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

bool memscope_is_locked(uintptr_t start, uintptr_t end) {
    return msync((void *)start, end - start, MS_INVALIDATE) != 0 && errno == EBUSY;
}

enum memscope_status memscope_returnable(void) {
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    enum memscope_status status = MEMSCOPE_OK;

    if (page == MAP_FAILED)
        return memscope_status_of_errno(errno);
    if (madvise(page, size, MADV_DONTNEED) != 0) {
        status = memscope_status_of_errno(errno);
        if (memscope_is_locked((uintptr_t)page, (uintptr_t)page + size)) /* mlockall(MCL_FUTURE) */
            status = MEMSCOPE_OK;
    }
    munmap(page, size);
    return status;
}
