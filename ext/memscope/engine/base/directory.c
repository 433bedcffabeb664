#include "base/directory.h"

#include "base/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/syscall.h>
#include <unistd.h>

struct entry { /* struct linux_dirent64 */
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

static bool visit_entry(const struct entry *entry, bool (*visit)(int number, void *context), void *context) {
    const char *cursor = entry->name;
    uint64_t number;

    if (!memscope_text_decimal(&cursor, &number) || *cursor != '\0' || number > INT_MAX)
        return true;
    return visit((int)number, context);
}

enum memscope_status memscope_directory_numbers(const char *path, bool (*visit)(int number, void *context),
                                                void *context) {
    char buffer[4096] __attribute__((aligned(8)));
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool more = true;
    long bytes;

    if (directory < 0)
        return memscope_status_of_errno(errno);
    while (more && (bytes = syscall(SYS_getdents64, directory, buffer, sizeof buffer)) > 0) {
        for (long at = 0; more && at < bytes;) {
            const struct entry *entry = (const void *)(buffer + at);

            at += entry->length;
            more = visit_entry(entry, visit, context);
        }
    }
    close(directory);
    return MEMSCOPE_OK;
}
