#include "attach/private_copy.h"

#include "attach/remote_mappings.h"
#include "attach/remote_memory.h"
#include "attach/tracing.h"
#include "base/directory.h"
#include "base/text_file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

#define MAX_REPLACED 1024

/*
 * Descriptors that Ruby's own waking up needs are replaced by fresh ones with the same numbers: Ruby up to 3.2 aborts
 * without them, and through the host's the copy would take the host's wake-ups.
 */
enum kind { EVENT, POLL, READER, WRITER, KINDS };

struct replaced {
    int pid;
    size_t count;
    struct {
        int descriptor;
        enum kind kind;
    } list[MAX_REPLACED]; /* ascending */
};

static bool writes(int pid, int descriptor) {
    char path[64], text[256];
    size_t length;
    const char *flags;

    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", pid, descriptor);
    if (memscope_text_file_read(path, text, sizeof text, &length) != MEMSCOPE_OK)
        return false;
    flags = strstr(text, "flags:");
    return flags != NULL && (flags[strcspn(flags, "\n") - 1] & O_ACCMODE) == O_WRONLY;
}

static bool note(int descriptor, void *context) {
    struct replaced *replaced = context;
    char path[64], link[64];
    enum kind kind = KINDS;
    ssize_t length;
    size_t at = replaced->count;

    snprintf(path, sizeof path, "/proc/%d/fd/%d", replaced->pid, descriptor);
    length = readlink(path, link, sizeof link - 1);
    link[length < 0 ? 0 : length] = '\0';
    if (strstr(link, "[eventfd]") != NULL)
        kind = EVENT;
    else if (strstr(link, "[eventpoll]") != NULL)
        kind = POLL;
    else if (strncmp(link, "pipe:", 5) == 0)
        kind = writes(replaced->pid, descriptor) ? WRITER : READER;
    if (kind == KINDS || descriptor <= STDERR_FILENO || replaced->count == MAX_REPLACED)
        return true;
    for (; at > 0 && replaced->list[at - 1].descriptor > descriptor; at--)
        replaced->list[at] = replaced->list[at - 1];
    replaced->list[at].descriptor = descriptor;
    replaced->list[at].kind = kind;
    replaced->count++;
    return true;
}

static long call(struct memscope_private_copy *copy, long number, uint64_t first, uint64_t second, uint64_t third) {
    const uint64_t arguments[6] = {first, second, third, 0, 0, 0};

    return memscope_private_copy_system_call(copy, number, arguments);
}

static bool close_others(struct memscope_private_copy *copy, const struct replaced *replaced) {
    uint64_t from = 0;

    for (size_t index = 0; index < replaced->count; index++) {
        uint64_t kept = (uint64_t)replaced->list[index].descriptor;

        if (kept > from && call(copy, SYS_close_range, from, kept - 1, 0) != 0)
            return false;
        from = kept + 1;
    }
    return call(copy, SYS_close_range, from, UINT_MAX, 0) == 0;
}

/* Both ends of a new pipe of the copy. */
static bool open_pipe(struct memscope_private_copy *copy, int flags, int ends[2]) {
    return call(copy, SYS_pipe2, copy->room, (uint64_t)flags, 0) == 0 &&
           memscope_remote_read(copy->pid, copy->room, ends, 2 * sizeof *ends);
}

/* Ruby makes the standard streams blocking before it starts a process, which none of the others may become. */
static bool fill_standard_streams(struct memscope_private_copy *copy) {
    for (int descriptor = 0; descriptor <= STDERR_FILENO; descriptor++)
        if (call(copy, SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC, 0) != descriptor)
            return false;
    return true;
}

static bool replace(struct memscope_private_copy *copy, const struct replaced *replaced) {
    long fresh[KINDS];
    int ends[2];

    if (!fill_standard_streams(copy))
        return false;
    if (replaced->count == 0)
        return true;
    fresh[EVENT] = call(copy, SYS_eventfd2, 0, EFD_NONBLOCK | EFD_CLOEXEC, 0);
    fresh[POLL] = call(copy, SYS_epoll_create1, O_CLOEXEC, 0, 0);
    if (fresh[EVENT] < 0 || fresh[POLL] < 0 || !open_pipe(copy, O_NONBLOCK | O_CLOEXEC, ends))
        return false;
    fresh[READER] = ends[0];
    fresh[WRITER] = ends[1];
    for (size_t index = 0; index < replaced->count; index++) {
        uint64_t number = (uint64_t)replaced->list[index].descriptor;
        long from = fresh[replaced->list[index].kind];

        if ((uint64_t)from != number && call(copy, SYS_dup3, (uint64_t)from, number, O_CLOEXEC) < 0)
            return false;
    }
    return true;
}

/* The pipe through which the copy writes a dump. The tracer opens its other end by /proc. */
static bool open_answer_pipe(struct memscope_private_copy *copy) {
    char path[64];
    int ends[2];

    if (!open_pipe(copy, O_CLOEXEC, ends))
        return false;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)copy->pid, ends[0]);
    copy->pipe = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    copy->pipe_end = ends[1];
    if (copy->pipe >= 0)
        (void)fcntl(copy->pipe, F_SETPIPE_SZ, MEMSCOPE_COPY_PIPE_BYTES);
    return copy->pipe >= 0;
}

struct protection {
    struct memscope_private_copy *copy;
    bool done;
};

static bool protect(const struct memscope_mapping *mapping, void *context) {
    struct protection *protection = context;

    if (mapping->shared && mapping->writable)
        protection->done =
            call(protection->copy, SYS_mprotect, mapping->start, mapping->end - mapping->start, PROT_READ) == 0;
    return protection->done;
}

/* Memory that is shared with others must not be written. */
static bool protect_shared(struct memscope_private_copy *copy) {
    struct protection protection = {copy, true};

    return memscope_remote_mappings(copy->pid, protect, &protection) == MEMSCOPE_OK && protection.done;
}

bool memscope_private_copy_isolate(struct memscope_private_copy *copy) {
    const uint64_t mapping[6] = {0, MEMSCOPE_COPY_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX,
                                 0};
    struct replaced replaced = {.pid = (int)copy->pid};
    char path[32];
    long room = memscope_private_copy_system_call(copy, SYS_mmap, mapping);

    snprintf(path, sizeof path, "/proc/%d/fd", (int)copy->pid);
    copy->room = (uint64_t)room;
    copy->parent = (pid_t)call(copy, SYS_getppid, 0, 0, 0);
    if (room > 0 && copy->parent > 0 && memscope_directory_numbers(path, note, &replaced) == MEMSCOPE_OK &&
        close_others(copy, &replaced) && replace(copy, &replaced) && open_answer_pipe(copy) && protect_shared(copy))
        return true;
    return memscope_refuse(copy->refusal, "not_isolated");
}
