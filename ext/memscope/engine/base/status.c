#include "base/status.h"

#include <errno.h>
#include <stddef.h>

static const char *const ids[] = {
    [MEMSCOPE_OK] = "ok",
    [MEMSCOPE_UNSUPPORTED] = "unsupported",
    [MEMSCOPE_DENIED] = "denied",
    [MEMSCOPE_NOT_FOUND] = "not_found",
    [MEMSCOPE_MALFORMED] = "malformed",
    [MEMSCOPE_NO_MEMORY] = "no_memory",
    [MEMSCOPE_TRUNCATED] = "truncated",
    [MEMSCOPE_IO] = "io",
    [MEMSCOPE_EXHAUSTED] = "exhausted",
    [MEMSCOPE_NO_FILE] = "no_file",
    [MEMSCOPE_SHARED] = "shared",
};

const char *memscope_status_id(enum memscope_status status) {
    return (size_t)status < sizeof ids / sizeof *ids ? ids[status] : ids[MEMSCOPE_IO];
}

enum memscope_status memscope_status_of_errno(int error) {
    switch (error) {
    case EACCES:
    case EPERM:
        return MEMSCOPE_DENIED;
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
        return MEMSCOPE_NOT_FOUND;
    case ENOTTY:
    case ENOSYS:
    case EINVAL:
    case EOPNOTSUPP:
        return MEMSCOPE_UNSUPPORTED;
    case ENOMEM:
        return MEMSCOPE_NO_MEMORY;
    case EMFILE:
    case ENFILE:
        return MEMSCOPE_NO_FILE;
    default:
        return MEMSCOPE_IO;
    }
}
