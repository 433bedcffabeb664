#include "dump/objspace_graph.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

static long long cpu_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* The CPU time of reading a dump of ObjectSpace into a graph, without any answer; -1 if it cannot be read. */
long long floor_read_dump(const char *path) {
    int file = open(path, O_RDONLY | O_CLOEXEC);
    long long start = cpu_ns(), took = -1;
    struct memscope_objspace_reader reader = {0};

    if (file < 0)
        return -1;
    if (memscope_objspace_reader_open(&reader, file) == MEMSCOPE_OK) {
        while (memscope_objspace_reader_continue(&reader))
            continue;
        if (memscope_objspace_graph_make(&reader) == MEMSCOPE_OK)
            took = cpu_ns() - start;
    }
    memscope_objspace_reader_close(&reader);
    close(file);
    return took;
}
