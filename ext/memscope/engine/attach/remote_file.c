#include "attach/remote_file.h"

#include "base/descriptors.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_openat2
#define SYS_openat2 437
#endif
/* linux/openat2.h, which glibc and musl lack. */
#define NO_SYMLINKS 0x04
#define IN_ROOT 0x10

static int open_in_root(int root, const char *path) {
    const struct { uint64_t flags, mode, resolve; } how = {O_PATH | O_CLOEXEC, 0, IN_ROOT | NO_SYMLINKS};

    return (int)syscall(SYS_openat2, root, path, &how, sizeof how);
}

bool memscope_remote_file_is_own(pid_t pid, const char *path) {
    struct stat own, other;
    char root_path[32];
    int root, file;
    bool same;

    snprintf(root_path, sizeof root_path, "/proc/%d/root", (int)pid);
    root = memscope_descriptor_open(root_path, O_PATH | O_DIRECTORY);
    if (root < 0)
        return false;
    file = open_in_root(root, path);
    same = file >= 0 && stat(path, &own) == 0 && fstat(file, &other) == 0 && own.st_dev == other.st_dev &&
           own.st_ino == other.st_ino;
    if (file >= 0)
        close(file);
    memscope_descriptor_close(root);
    return same;
}
