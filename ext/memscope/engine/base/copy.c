#include "base/copy.h"

#include "base/text_file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char original_name[16] = "self";

/* /proc may be of another pid namespace, whose pid for the parent is this one. */
static uint64_t parent_in_proc(void) {
    char text[4096];
    size_t length;
    uint64_t parent = 0;
    enum memscope_status status = memscope_text_file_read("/proc/self/status", text, sizeof text, &length);

    if (status == MEMSCOPE_OK || status == MEMSCOPE_TRUNCATED)
        memscope_text_number(text, "PPid", "", &parent);
    return parent;
}

void memscope_copy_become(pid_t original) {
    uint64_t parent = getppid() == original ? parent_in_proc() : 0; /* another one if the original has ended */

    snprintf(original_name, sizeof original_name, "%d", parent == 0 ? (int)original : (int)parent);
}

bool memscope_is_copy(void) {
    return original_name[0] != 's';
}

const char *memscope_name_in_proc(const char *process) {
    return strcmp(process, "self") == 0 ? original_name : process;
}

const char *memscope_path_in_proc(char path[MEMSCOPE_PROC_PATH], const char *name) {
    stpcpy(stpcpy(stpcpy(stpcpy(path, "/proc/"), original_name), "/"), name);
    return path;
}
