#include "kernel/program.h"

#ifdef __linux__

#include <errno.h>
#include <stddef.h>
#include <sys/xattr.h>

enum memscope_status memscope_program_capabilities(const char *path, bool *found) {
    *found = getxattr(path, "security.capability", NULL, 0) > 0;
    if (*found || errno == ENODATA || errno == EOPNOTSUPP)
        return MEMSCOPE_OK;
    return memscope_status_of_errno(errno);
}

#else

enum memscope_status memscope_program_capabilities(const char *path, bool *found) {
    (void)path;
    *found = false;
    return MEMSCOPE_UNSUPPORTED;
}

#endif
