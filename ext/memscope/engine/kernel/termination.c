#include "kernel/termination.h"

#include "base/descriptors.h"
#include "base/text_file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The number is 424 on every architecture except Alpha, whose headers define it. */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

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
