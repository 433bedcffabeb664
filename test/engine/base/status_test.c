#include "../expect.h"
#include "base/status.h"

#include <errno.h>
#include <string.h>

static void test_every_status_has_its_own_id(void) {
    for (int status = MEMSCOPE_OK; status <= MEMSCOPE_NO_FILE; status++) {
        const char *id = memscope_status_id((enum memscope_status)status);

        EXPECT(strlen(id) > 0);
        for (int other = MEMSCOPE_OK; other < status; other++)
            EXPECT(strcmp(id, memscope_status_id((enum memscope_status)other)) != 0);
    }
    EXPECT(strlen(memscope_status_id((enum memscope_status)999)) > 0);
}

static void test_statuses_of_errno(void) {
    EXPECT(memscope_status_of_errno(EACCES) == MEMSCOPE_DENIED);
    EXPECT(memscope_status_of_errno(EPERM) == MEMSCOPE_DENIED);
    EXPECT(memscope_status_of_errno(ENOENT) == MEMSCOPE_NOT_FOUND);
    EXPECT(memscope_status_of_errno(ESRCH) == MEMSCOPE_NOT_FOUND);
    EXPECT(memscope_status_of_errno(ENOSYS) == MEMSCOPE_UNSUPPORTED);
    EXPECT(memscope_status_of_errno(ENOMEM) == MEMSCOPE_NO_MEMORY);
    EXPECT(memscope_status_of_errno(EMFILE) == MEMSCOPE_NO_FILE);
    EXPECT(memscope_status_of_errno(EIO) == MEMSCOPE_IO);
}

int main(void) {
    test_every_status_has_its_own_id();
    test_statuses_of_errno();
    return 0;
}
