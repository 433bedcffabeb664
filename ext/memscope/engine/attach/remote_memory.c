#include "attach/remote_memory.h"

#include <string.h>
#include <sys/uio.h>

/* No read crosses from a page into one that may be missing. */
#define PAGE 4096

bool memscope_remote_read(pid_t pid, uint64_t from, void *to, size_t size) {
    struct iovec local = {to, size}, remote = {(void *)(uintptr_t)from, size};

    return process_vm_readv(pid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

bool memscope_remote_write(pid_t pid, uint64_t to, const void *from, size_t size) {
    struct iovec local = {(void *)(uintptr_t)from, size}, remote = {(void *)(uintptr_t)to, size};

    return process_vm_writev(pid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

bool memscope_remote_text(pid_t pid, uint64_t from, char *to, size_t capacity) {
    size_t length = 0;

    while (length < capacity - 1) {
        size_t part = PAGE - (size_t)((from + length) % PAGE);

        if (part > capacity - 1 - length)
            part = capacity - 1 - length;
        if (!memscope_remote_read(pid, from + length, to + length, part))
            break;
        length += part;
        if (memchr(to + length - part, '\0', part) != NULL)
            break;
    }
    to[length] = '\0';
    return length > 0;
}
