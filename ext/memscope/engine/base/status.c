#include "base/status.h"

#include <errno.h>

const char *memscope_status_text(enum memscope_status status) {
    switch (status) {
    case MEMSCOPE_OK:
        return "read";
    case MEMSCOPE_UNSUPPORTED:
        return "not supported on this platform";
    case MEMSCOPE_DENIED:
        return "refused by the kernel";
    case MEMSCOPE_NOT_FOUND:
        return "not there";
    case MEMSCOPE_MALFORMED:
        return "not in the documented form";
    case MEMSCOPE_NO_MEMORY:
        return "no scratch memory could be mapped";
    case MEMSCOPE_TRUNCATED:
        return "larger than the room for it";
    case MEMSCOPE_IO:
        return "could not be read";
    }
    return "unknown status";
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
    default:
        return MEMSCOPE_IO;
    }
}
