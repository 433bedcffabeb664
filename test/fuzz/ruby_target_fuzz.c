/*
 * A process to attach to, which may be forged. The input: the text of its status and a NUL, that of its maps and a NUL,
 * then its memory, which is followed by zeros. The memory's last bytes are the registers of two threads.
 *
 * The seeds have a library that is both a Ruby and a C library (cc -shared -nostdlib -Wl,--hash-style=gnu,
 * -z,noseparate-code,-z,max-page-size=16), as loaded, with ruby_current_ec exported or hidden, and a Ractor.
 */
#include "attach/remote_place.h"
#include "attach/ruby_threads.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PID 4194305 /* no process: above the kernel's maximum */
#define MEMORY UINT64_C(0x10000)
#define ZEROS UINT64_C(0x20000)
#define THREADS 2

static struct {
    char status[4096], maps[4096];
    const uint8_t *memory;
    size_t size;
} input;

/* In place of the C library's: the files of the process, one at a time, which are no real ones. */
#define FILE_OF_PROCESS 1000000

static const char *unread; /* of the open one */

int open(const char *path, int flags, ...) {
    int pid, end = 0;

    if (sscanf(path, "/proc/%d/%n", &pid, &end) != 1 || pid != PID)
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0600);
    unread = strcmp(path + end, "stat") == 0     ? "7 (ruby) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0 0\n"
             : strcmp(path + end, "status") == 0 ? input.status
                                                 : input.maps;
    return FILE_OF_PROCESS;
}

ssize_t read(int descriptor, void *bytes, size_t size) {
    size_t length;

    if (descriptor != FILE_OF_PROCESS)
        return syscall(SYS_read, descriptor, bytes, size);
    length = strnlen(unread, size);
    memcpy(bytes, unread, length);
    unread += length;
    return (ssize_t)length;
}

int close(int descriptor) {
    return descriptor == FILE_OF_PROCESS ? 0 : (int)syscall(SYS_close, descriptor);
}

/* Likewise its memory. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long count, const struct iovec *remote,
                         unsigned long remote_count, unsigned long flags) {
    uint64_t offset = (uintptr_t)remote->iov_base - MEMORY;
    size_t size = remote->iov_len, there = offset < input.size ? input.size - offset : 0;

    if (pid != PID || count != 1 || remote_count != 1 || flags != 0 || local->iov_len != size)
        abort();
    errno = EFAULT;
    if (offset >= input.size + ZEROS || size > input.size + ZEROS - offset)
        return -1;
    there = there < size ? there : size;
    memset(local->iov_base, 0, size);
    if (there > 0)
        memcpy(local->iov_base, input.memory + offset, there);
    return (ssize_t)size;
}

/* The text up to its NUL, and where the rest begins. */
static size_t take_text(const uint8_t *data, size_t size, char text[4096]) {
    size_t length = strnlen((const char *)data, size);

    snprintf(text, 4096, "%.*s", (int)length, (const char *)data);
    return length < size ? length + 1 : size;
}

static void set_registers(struct memscope_tracee *tracee, const uint8_t *bytes) {
    int32_t call_and_result[2];

    tracee->stopped = true;
    memcpy(&tracee->registers.user.fs_base, bytes, 8);
    memcpy(call_and_result, bytes + 8, sizeof call_and_result);
    tracee->registers.user.orig_rax = (uint64_t)(int64_t)call_and_result[0];
    tracee->registers.user.rax = (uint64_t)(int64_t)call_and_result[1];
}

static void check_threads(const struct memscope_ruby_target *target) {
    static struct memscope_tracees tracees = {.pid = PID, .count = THREADS};
    struct memscope_refusal refusal = {0};
    const struct memscope_tracee *chosen;

    tracees.refusal = &refusal;
    for (size_t index = 0; index < THREADS && input.size >= THREADS * 16; index++) {
        tracees.list[index] = (struct memscope_tracee){.id = PID + (pid_t)index};
        set_registers(&tracees.list[index], input.memory + input.size - (THREADS - index) * 16);
    }
    chosen = memscope_ruby_threads_choose(target, &tracees);
    if (chosen != NULL && (chosen < tracees.list || chosen >= tracees.list + THREADS || chosen->context == 0))
        abort();
    if ((chosen == NULL) != (refusal.text[0] != '\0'))
        abort();
}

/* Of a function in the seeds. */
static void check_place(void) {
    char place[MEMSCOPE_PLACE_BYTES];

    memscope_remote_place(PID, MEMORY + 0x3a0, place, sizeof place);
    if (strlen(place) < 2)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct memscope_ruby_target target;
    struct memscope_refusal refusal = {0};
    size_t at = take_text(data, size, input.status);

    at += take_text(data + at, size - at, input.maps);
    input.memory = data + at;
    input.size = size - at;
    if (memscope_ruby_target_find(PID, &target, &refusal)) {
        if (refusal.text[0] != '\0' || target.version[strspn(target.version, "0123456789.")] != '\0')
            abort();
        check_threads(&target);
        check_place();
    } else if (refusal.text[0] == '\0') {
        abort();
    }
    return 0;
}
