#include "kernel/peak.h"

#include "base/descriptors.h"
#include "kernel/process.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum memscope_status memscope_peak_reset(void) {
    int file = memscope_descriptor_open("/proc/self/clear_refs", O_WRONLY);
    enum memscope_status status;

    if (file < 0)
        return memscope_status_of_errno(errno);
    status = write(file, "5", 1) == 1 ? MEMSCOPE_OK : memscope_status_of_errno(errno);
    memscope_descriptor_close(file);
    return status;
}

enum memscope_status memscope_peak_read(uint64_t *bytes) {
    struct memscope_process_memory memory;
    enum memscope_status status = memscope_process_status_read("self", &memory);

    if (status != MEMSCOPE_OK)
        return status;
    *bytes = memory.figures.peak_rss_bytes;
    return *bytes != MEMSCOPE_UNKNOWN ? MEMSCOPE_OK : MEMSCOPE_NOT_FOUND;
}
