#include "../expect.h"
#include "kernel/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char path[] = "program_test.file";

static void make_file(void) {
    int descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);

    EXPECT(descriptor >= 0);
    close(descriptor);
}

#ifdef __linux__

#include <sys/xattr.h>

/* VFS_CAP_REVISION_2 of linux/capability.h with CAP_NET_BIND_SERVICE permitted, little-endian. */
static const unsigned char capability[20] = {0, 0, 0, 2, 0, 4};

static void test_plain_file(void) {
    bool found = true;

    EXPECT(memscope_program_capabilities(path, &found) == MEMSCOPE_OK);
    EXPECT(!found);
}

static void test_capable_file(void) {
    bool found = false;

    if (setxattr(path, "security.capability", capability, sizeof capability, 0) != 0) {
        unlink(path);
        SKIP("no permission to give a file capabilities");
    }
    EXPECT(memscope_program_capabilities(path, &found) == MEMSCOPE_OK);
    EXPECT(found);
}

static void test_no_file(void) {
    bool found = true;

    EXPECT(memscope_program_capabilities("program_test.none", &found) == MEMSCOPE_NOT_FOUND);
    EXPECT(!found);
}

int main(void) {
    make_file();
    test_no_file();
    test_plain_file();
    test_capable_file();
    unlink(path);
    return 0;
}

#else

int main(void) {
    bool found = true;

    make_file();
    EXPECT(memscope_program_capabilities(path, &found) == MEMSCOPE_UNSUPPORTED);
    EXPECT(!found);
    unlink(path);
    return 0;
}

#endif
