/* Whether pages can be returned: a locked page, an unlocked page, and any page if madvise is refused. */
#include "../expect.h"
#include "kernel/returnable.h"

/* A sanitizer replaces mlock with a no-op; musl-gcc does not find the kernel's headers. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)

#include "../refuse_call.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void in_child(void (*work)(void)) {
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        work();
        _exit(0);
    }
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static void check_refused(void) {
    EXPECT(refuse_call(SYS_madvise, EPERM));
    EXPECT(memscope_returnable() == MEMSCOPE_DENIED);
}

static void check_all_locked(void) {
    if (mlockall(MCL_FUTURE) == 0)
        EXPECT(memscope_returnable() == MEMSCOPE_OK); /* locked, but not refused */
}

int main(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t start = (uintptr_t)pages;

    EXPECT(pages != MAP_FAILED);
    memset(pages, 1, 4 * page);
    EXPECT(memscope_returnable() == MEMSCOPE_OK);
    EXPECT(!memscope_is_locked(start, start + 4 * page));
    EXPECT(mlock(pages + 2 * page, page) == 0);
    EXPECT(memscope_is_locked(start, start + 4 * page));
    EXPECT(memscope_is_locked(start + 2 * page, start + 3 * page));
    EXPECT(!memscope_is_locked(start, start + 2 * page) && !memscope_is_locked(start + 3 * page, start + 4 * page));
    EXPECT(pages[0] == 1 && pages[3 * page] == 1);
    EXPECT(munmap(pages, 4 * page) == 0);
    EXPECT(!memscope_is_locked(start, start + page)); /* nothing is mapped there */
    in_child(check_all_locked);
    in_child(check_refused);
    return 0;
}

#else

int main(void) {
    SKIP("mlock or seccomp is not to be had here");
}

#endif
