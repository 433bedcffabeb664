#include "base/status.h"

#include <errno.h>
#include <stddef.h>

#define STATUS(name, id) #id,
static const char *const ids[] = {MEMSCOPE_STATUSES(STATUS)};

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
