/* A copy reads the kernel's files of its original, and every other process its own. */
#include "../expect.h"
#include "base/copy.h"
#include "kernel/mappings.h"
#include "kernel/own_children.h"
#include "kernel/process.h"
#include "kernel/residency.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)
#define TOUCHED (8 * MIB)

static void check_names(const char *name) {
    char path[MEMSCOPE_PROC_PATH], expected[MEMSCOPE_PROC_PATH];

    snprintf(expected, sizeof expected, "/proc/%s/smaps_rollup", name);
    EXPECT(strcmp(memscope_path_in_proc(path, "smaps_rollup"), expected) == 0);
    EXPECT(strcmp(memscope_name_in_proc("self"), name) == 0);
    EXPECT(strcmp(memscope_name_in_proc("4711"), "4711") == 0);
}

struct seen {
    uint64_t statm, rollup, scanned;
    bool lists_new_mapping;
};

static struct seen read_all(const char *new_mapping) {
    struct memscope_scratch list, names;
    struct memscope_mappings_memory memory = {&list, &names};
    struct memscope_mappings mappings;
    struct memscope_residency residency;
    struct memscope_process_memory whole;
    struct memscope_statm statm;
    struct seen seen;

    EXPECT(memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&names) == MEMSCOPE_OK);
    EXPECT(memscope_statm_read(&statm) == MEMSCOPE_OK);
    EXPECT(memscope_mappings_read(false, &memory, &mappings) == MEMSCOPE_OK);
    EXPECT(memscope_residency_read(&mappings, &memory, &residency) == MEMSCOPE_OK);
    EXPECT(memscope_process_memory_read("self", &whole) == MEMSCOPE_OK || memscope_is_copy());
    seen.statm = statm.resident_bytes;
    seen.rollup = whole.figures.rss_bytes;
    seen.scanned = residency.resident_bytes;
    seen.lists_new_mapping = memscope_mappings_find(&mappings, (uintptr_t)new_mapping) != NULL;
    memscope_scratch_close(&list);
    memscope_scratch_close(&names);
    return seen;
}

static bool near(uint64_t bytes, uint64_t others) {
    return bytes < others + 2 * MIB && others < bytes + 2 * MIB;
}

/* What the copy maps and touches is not its original's. */
static void live_as_copy(struct seen original) {
    char number[16], *touched;
    struct memscope_process_memory whole;
    struct seen seen;

    snprintf(number, sizeof number, "%d", (int)getppid());
    memscope_copy_become(getppid());
    EXPECT(memscope_is_copy());
    check_names(number);
    touched = mmap(NULL, TOUCHED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(touched != MAP_FAILED);
    memset(touched, 1, TOUCHED);
    seen = read_all(touched);
    EXPECT(near(seen.statm, original.statm) && near(seen.scanned, original.statm) && near(seen.rollup, original.statm));
    EXPECT(!seen.lists_new_mapping);
    EXPECT(memscope_process_memory_read("self", &whole) == MEMSCOPE_SHARED || whole.smaps_rollup == MEMSCOPE_SHARED);
    EXPECT(!memscope_own_children_await());
    EXPECT(memscope_sharing_reading_end(memscope_sharing_reading_begin()) == MEMSCOPE_SHARED);
    exit(0);
}

/* The pid that it is told, if its original has ended and it has another parent. */
static void live_as_orphan(void) {
    memscope_copy_become(4194304);
    check_names("4194304");
    exit(0);
}

int main(void) {
    struct seen original;
    char *touched;
    int status;
    pid_t copy;

    EXPECT(!memscope_is_copy());
    check_names("self");
    touched = mmap(NULL, TOUCHED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(touched != MAP_FAILED);
    memset(touched, 1, TOUCHED);
    original = read_all(touched);
    EXPECT(original.lists_new_mapping && near(original.scanned, original.statm));
    copy = fork();
    if (copy == 0)
        live_as_copy(original);
    EXPECT(waitpid(copy, &status, 0) == copy && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    copy = fork();
    if (copy == 0)
        live_as_orphan();
    EXPECT(waitpid(copy, &status, 0) == copy && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT(!memscope_is_copy());
    return 0;
}
