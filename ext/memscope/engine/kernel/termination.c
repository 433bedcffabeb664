#include "kernel/termination.h"

#include "base/descriptors.h"
#include "base/text_file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The number is 424 on every architecture except Alpha, whose headers define it. */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

/* PIDFD_GET_INFO of linux/pidfd.h, which the headers of older kernels lack: its first form, of 64 bytes. */
struct process_info {
    uint64_t mask, cgroup;
    uint32_t ids[11]; /* of the process, its parent, users and groups */
    int32_t exit_code;
};
#define GET_PROCESS_INFO _IOWR(0xff, 11, struct process_info)
#define INFO_EXIT ((uint64_t)1 << 3)

/* 52 numbers and a name of at most 64 bytes. */
#define STAT_SIZE 1536
/* The start time is field 22. Field 2, the name, ends with the last parenthesis. */
#define FIELDS_AFTER_NAME 20

enum memscope_status memscope_process_started_parse(const char *text, uint64_t *ticks) {
    const char *cursor = strrchr(text, ')');

    for (int field = 0; cursor != NULL && field < FIELDS_AFTER_NAME; field++)
        cursor = strchr(cursor + 1, ' ');
    if (cursor == NULL)
        return MEMSCOPE_MALFORMED;
    cursor++;
    return memscope_text_decimal(&cursor, ticks) && *cursor == ' ' ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
}

enum memscope_status memscope_process_started(pid_t pid, uint64_t *ticks) {
    char path[32], text[STAT_SIZE];
    enum memscope_status status;
    size_t length;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    status = memscope_text_file_read(path, text, sizeof text, &length);
    return status == MEMSCOPE_OK ? memscope_process_started_parse(text, ticks) : status;
}

static enum memscope_status send_termination(pid_t pid, int descriptor) {
    long result = descriptor >= 0 ? syscall(SYS_pidfd_send_signal, descriptor, SIGTERM, NULL, 0) : kill(pid, SIGTERM);

    return result == 0 ? MEMSCOPE_OK : memscope_status_of_errno(errno);
}

enum memscope_status memscope_process_terminate(pid_t pid, uint64_t started, bool *by_pidfd) {
    uint64_t ticks = 0;
    int descriptor = memscope_descriptor_of_process(pid);
    enum memscope_status status;

    *by_pidfd = descriptor >= 0;
    if (descriptor < 0 && errno == ESRCH)
        return MEMSCOPE_NOT_FOUND;
    status = memscope_process_started(pid, &ticks);
    if (status == MEMSCOPE_OK && ticks != started)
        status = MEMSCOPE_NOT_FOUND;
    if (status == MEMSCOPE_OK)
        status = send_termination(pid, descriptor);
    if (descriptor >= 0)
        memscope_descriptor_close(descriptor);
    return status;
}

int memscope_process_hold(pid_t pid, uint64_t started) {
    struct process_info info = {.mask = INFO_EXIT};
    uint64_t ticks = 0;
    int descriptor = memscope_descriptor_of_process(pid);

    if (descriptor < 0)
        return -1;
    if (memscope_process_started(pid, &ticks) == MEMSCOPE_OK && ticks == started &&
        ioctl(descriptor, GET_PROCESS_INFO, &info) == 0)
        return descriptor;
    memscope_descriptor_close(descriptor);
    return -1;
}

bool memscope_process_ended(int descriptor, int *status) {
    struct process_info info = {.mask = INFO_EXIT};

    if (ioctl(descriptor, GET_PROCESS_INFO, &info) != 0) {
        if (errno != ESRCH)
            return false;
        info.exit_code = -1;
    } else if ((info.mask & INFO_EXIT) == 0) {
        return false;
    }
    *status = info.exit_code;
    memscope_descriptor_close(descriptor);
    return true;
}
