#include "attach/copy_calls.h"

#include "attach/remote_memory.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COPIED_BYTES ((size_t)1 << 16)
/* In the room: a function's result or a path, and the expression above them. */
#define RESULT_AT 0
#define TEXT_AT 4096
#define OBJECT "memscope.so"

/* ---- the safe point -------------------------------------------------------------------------------------------- */

/* The next registers to call from: at the marker, which `at` has just reached. */
static void stay_at(struct memscope_private_copy *copy, const struct memscope_registers *at) {
    copy->registers = *at;
    copy->at_safe_point = true;
}

/* As any C code may do that has released the GVL, whether it computes or waits for the kernel. */
static bool take_gvl(struct memscope_private_copy *copy) {
    struct memscope_registers registers;

    if (!memscope_private_copy_enter(copy, copy->target->functions.call_with_gvl, copy->target->entry.marker, 0,
                                     &registers))
        return false;
    stay_at(copy, &registers);
    return true;
}

/* A thread that waits for another thread looks at its interrupts only when it is woken. */
static bool wake(struct memscope_private_copy *copy) {
    uint64_t thread = 0;

    if (!copy->waited)
        return true;
    return memscope_private_copy_call(copy, copy->target->functions.current_thread, 0, 0, &thread) &&
           memscope_private_copy_call(copy, copy->target->functions.wake_thread, thread, 0, NULL);
}

/* To a postponed job that calls the marker. */
static bool run_forward(struct memscope_private_copy *copy) {
    struct memscope_registers registers = copy->registers;

    if (!memscope_private_copy_call(copy, copy->target->functions.post_job, 0, copy->target->entry.marker, NULL) ||
        !wake(copy))
        return false;
    memscope_registers_interrupt_call(&registers);
    if (!memscope_leave_system_call(copy->pid) || !memscope_registers_write(copy->pid, &registers))
        return memscope_refuse(copy->refusal, "copy_ended");
    if (!memscope_private_copy_run(copy, &registers))
        return false;
    stay_at(copy, &registers);
    return true;
}

/*
 * No interrupt is handled from here on: a switch to another thread, which does not exist in the copy, would not return.
 * A postponed job runs with the interrupts for jobs and traps masked (0xc).
 */
static bool mask_interrupts(struct memscope_private_copy *copy) {
    uint64_t context = memscope_ruby_context(copy->target, copy->pid, &copy->registers);
    uint64_t place = context + MEMSCOPE_CONTEXT_INTERRUPTS;
    uint32_t flag_and_mask[2], all = UINT32_MAX;

    if (context != 0 && memscope_remote_read(copy->pid, place, flag_and_mask, sizeof flag_and_mask) &&
        flag_and_mask[0] <= UINT8_MAX && (flag_and_mask[1] & ~UINT32_C(0xc)) == 0 &&
        memscope_remote_write(copy->pid, place + sizeof all, &all, sizeof all))
        return true;
    return memscope_refuse_for(copy->refusal, "ruby_unknown", "%s", copy->target->version);
}

bool memscope_private_copy_reach_safe_point(struct memscope_private_copy *copy, bool forward) {
    uint64_t has_gvl = 1;

    if (!forward && !memscope_private_copy_call(copy, copy->target->functions.has_gvl, 0, 0, &has_gvl))
        return false;
    return ((has_gvl & UINT32_MAX) == 0 ? take_gvl(copy) : run_forward(copy)) && mask_interrupts(copy);
}

/* ---- memscope in it -------------------------------------------------------------------------------------------- */

static bool copy_bytes(int from, int to) {
    char buffer[COPIED_BYTES];
    ssize_t count;
    off_t at = 0;

    while ((count = pread(from, buffer, sizeof buffer, at)) > 0) {
        if (write(to, buffer, (size_t)count) != count)
            return false;
        at += count;
    }
    return count == 0 && at > 0;
}

/* Returns the copy's descriptor of a memory file with the extension, or -1. */
static long fill_memory_file(struct memscope_private_copy *copy, int extension) {
    const uint64_t arguments[6] = {copy->room + RESULT_AT, 0, 0, 0, 0, 0};
    char path[64];
    long file;
    int here;
    bool filled;

    if (!memscope_remote_write(copy->pid, copy->room + RESULT_AT, OBJECT, sizeof OBJECT) ||
        (file = memscope_private_copy_system_call(copy, SYS_memfd_create, arguments)) < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%ld", (int)copy->pid, file);
    here = open(path, O_WRONLY | O_CLOEXEC);
    filled = here >= 0 && copy_bytes(extension, here);
    if (here >= 0)
        close(here);
    return filled ? file : -1;
}

static bool refuse_load(struct memscope_private_copy *copy) {
    char text[200] = "";
    uint64_t error = 0;

    if (memscope_private_copy_call(copy, memscope_remote_module_address(&copy->target->libc, "dlerror"), 0, 0,
                                   &error) &&
        error != 0)
        (void)memscope_remote_text(copy->pid, error, text, sizeof text);
    return memscope_refuse_for(copy->refusal, "so_refused", "%s\n%s", OBJECT, text);
}

static bool find_function(struct memscope_private_copy *copy, uint64_t handle, const char *name, uint64_t *address) {
    if (!memscope_remote_write(copy->pid, copy->room + RESULT_AT, name, strlen(name) + 1))
        return memscope_refuse(copy->refusal, "copy_ended");
    return memscope_private_copy_call(copy, memscope_remote_module_address(&copy->target->libc, "dlsym"), handle,
                                      copy->room + RESULT_AT, address);
}

bool memscope_private_copy_load(struct memscope_private_copy *copy, int extension, uint64_t *evaluate) {
    long file = fill_memory_file(copy, extension);
    char path[64];
    int length = snprintf(path, sizeof path, "/proc/self/fd/%ld", file);
    uint64_t handle = 0, begin = 0, raised = 0;

    if (file < 0 || !memscope_remote_write(copy->pid, copy->room + RESULT_AT, path, (size_t)length + 1))
        return memscope_refuse_for(copy->refusal, "so_refused", "%s\nmemfd_create", OBJECT);
    if (!memscope_private_copy_call(copy, memscope_remote_module_address(&copy->target->libc, "dlopen"),
                                    copy->room + RESULT_AT, RTLD_NOW, &handle))
        return false;
    if (handle == 0)
        return refuse_load(copy);
    if (!find_function(copy, handle, "memscope_copy_evaluate", evaluate) ||
        !find_function(copy, handle, "memscope_copy_begin", &begin) ||
        !memscope_private_copy_call(copy, begin, (uint64_t)copy->parent, 0, &raised))
        return false;
    return (int)raised == 0 || memscope_refuse_for(copy->refusal, "so_refused", "%s\nInit_memscope raised", OBJECT);
}

bool memscope_private_copy_evaluate(struct memscope_private_copy *copy, uint64_t evaluate, const char *expression,
                                    size_t length, struct memscope_copy_answer *answer) {
    uint64_t text = copy->room + TEXT_AT;
    char end = '\0';

    *answer = (struct memscope_copy_answer){0};
    if (length >= MEMSCOPE_COPY_EXPRESSION || !memscope_remote_write(copy->pid, text, expression, length) ||
        !memscope_remote_write(copy->pid, text + length, &end, 1))
        return memscope_refuse(copy->refusal, "copy_ended");
    return memscope_private_copy_call(copy, evaluate, text, copy->room + RESULT_AT, NULL) &&
           (memscope_remote_read(copy->pid, copy->room + RESULT_AT, answer, sizeof *answer) ||
            memscope_refuse(copy->refusal, "copy_ended"));
}
