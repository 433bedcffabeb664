#include "attach/ruby_target.h"

#include "attach/remote_mappings.h"
#include "attach/remote_memory.h"
#include "base/descriptors.h"
#include "base/text_file.h"
#include "kernel/termination.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* linux/seccomp.h, which is not among the headers of musl-gcc. */
enum { SECCOMP_MODE_DISABLED, SECCOMP_MODE_STRICT };

#define CODE_BYTES 64
/* The restorer of signal handlers lies in the vDSO (arm64), or in the first part of the C library's code. */
#define LIBC_BYTES (UINT64_C(2) << 20)
#define PART_BYTES ((size_t)1 << 16)
#define RESTORER_BYTES 16

#if defined(__x86_64__)
#define MACHINE EM_X86_64
#else
#define MACHINE EM_AARCH64
#endif

/* ---- objects --------------------------------------------------------------------------------------------------- */

struct objects {
    struct memscope_ruby_target *target;
    uint64_t last_file; /* inode of the last object, 0 before the first one, the executable */
    uint64_t vdso, vdso_end;
    bool ruby_is_executable, other_machine, any, denied;
};

/* A version and an evaluator are exported by Ruby alone. Only the C library exports acct, which no Ruby calls. */
static void look_at(struct objects *objects, uint64_t start, const char *file, bool first) {
    struct memscope_ruby_target *target = objects->target;
    struct memscope_remote_module module;
    Elf64_Sym symbol;

    if (!memscope_remote_module_read(target->pid, start, &module))
        return;
    objects->other_machine |= first && module.machine != MACHINE;
    if (target->ruby.pid == 0 && memscope_remote_module_find(&module, "ruby_version", &symbol) &&
        memscope_remote_module_find(&module, "rb_eval_string", &symbol)) {
        target->ruby = module;
        objects->ruby_is_executable = first;
    }
    if (target->libc.pid == 0 && memscope_remote_module_find(&module, "acct", &symbol) &&
        memscope_remote_module_find(&module, "fork", &symbol)) {
        target->libc = module;
        snprintf(target->libc_name, sizeof target->libc_name, "%s", file);
    }
}

/* Yama and a missing capability allow to read maps, but not memory. */
static bool may_read(pid_t pid, uint64_t address) {
    char byte;

    errno = 0;
    return memscope_remote_read(pid, address, &byte, 1) || errno != EPERM;
}

/* The first mapping of each file has its header. */
static bool look_at_mapping(const struct memscope_mapping *mapping, void *context) {
    struct objects *objects = context;

    objects->denied = !objects->any && !may_read(objects->target->pid, mapping->start);
    objects->any = true;
    objects->target->mappings++;
    if (strcmp(mapping->name, "[vdso]") == 0) {
        objects->vdso = mapping->start;
        objects->vdso_end = mapping->end;
    }
    if (!objects->denied && mapping->inode != 0 && mapping->inode != objects->last_file && mapping->readable) {
        look_at(objects, mapping->start, memscope_remote_mapping_file(mapping), objects->last_file == 0);
        objects->last_file = mapping->inode;
    }
    return !objects->denied;
}

static bool find_objects(struct objects *objects, struct memscope_refusal *refusal) {
    enum memscope_status status = memscope_remote_mappings(objects->target->pid, look_at_mapping, objects);

    if (objects->denied)
        status = MEMSCOPE_DENIED;
    if (status == MEMSCOPE_OK)
        return true;
    return memscope_refuse_for(refusal, status == MEMSCOPE_DENIED ? "denied" : "maps_unread", "%s",
                               memscope_status_id(status));
}

/* ---- places in them -------------------------------------------------------------------------------------------- */

static uint64_t find_system_call(const struct memscope_ruby_target *target, uint64_t function) {
    unsigned char code[CODE_BYTES];
    long offset;

    if (function == 0 || !memscope_remote_read(target->pid, function, code, sizeof code))
        return 0;
    offset = memscope_code_find_system_call(code, sizeof code);
    return offset < 0 ? 0 : function + (uint64_t)offset;
}

static uint64_t find_restorer(pid_t pid, uint64_t from, uint64_t end) {
    unsigned char part[PART_BYTES];

    for (uint64_t at = from; at < end; at += sizeof part - RESTORER_BYTES) {
        size_t size = end - at < sizeof part ? (size_t)(end - at) : sizeof part;
        long offset = memscope_remote_read(pid, at, part, size) ? memscope_code_find_restorer(part, size) : -1;

        if (offset >= 0)
            return at + (uint64_t)offset;
    }
    return 0;
}

static bool find_ruby_places(struct memscope_ruby_target *target, bool is_executable) {
    struct memscope_ruby_functions *functions = &target->functions;
    bool all = true;

#define FUNCTION(field, name)                                                                                          \
    functions->field = memscope_remote_module_address(&target->ruby, name);                                            \
    all &= functions->field != 0;
#include "attach/ruby_functions.def"
    return all && memscope_thread_local_find(&target->ruby, is_executable, "ruby_current_ec", functions->current_thread,
                                             &target->context);
}

static bool find_places(const struct objects *objects, struct memscope_refusal *refusal) {
    struct memscope_ruby_target *target = objects->target;
    uint64_t function = memscope_remote_module_address(&target->libc, "acct"), code = target->libc.bias;
    Elf64_Sym symbol;

    target->is_glibc = memscope_remote_module_find(&target->libc, "gnu_get_libc_version", &symbol);
    target->entry.system_call = find_system_call(target, function);
    target->entry.marker = MEMSCOPE_MARKER(function, target->entry.system_call);
    target->entry.restorer = find_restorer(target->pid, objects->vdso, objects->vdso_end);
    if (target->entry.restorer == 0)
        target->entry.restorer = find_restorer(target->pid, code, code + LIBC_BYTES);
    target->entry.exit_function = memscope_remote_module_address(&target->libc, "_exit");
    if (target->entry.system_call == 0 || target->entry.restorer == 0 || target->entry.exit_function == 0)
        return memscope_refuse_for(refusal, "libc_unknown", "%s", target->libc_name);
    return find_ruby_places(target, objects->ruby_is_executable) ||
           memscope_refuse_for(refusal, "ruby_unknown", "%s", target->version);
}

/* ---- the process ----------------------------------------------------------------------------------------------- */

static uint64_t seccomp_mode(const char *status) {
    uint64_t mode = 0;

    (void)memscope_text_number(status, "Seccomp", "", &mode);
    return mode;
}

/*
 * A filter may kill the target for a call that this tracer makes in it. Root suspends the filter. Another user's own
 * filter, as of the same container, has let the tracer fork already.
 */
static bool check_filter(struct memscope_ruby_target *target, struct memscope_refusal *refusal) {
    char own[8192];
    size_t length;

    target->entry.filtered = memscope_text_file_read("/proc/self/status", own, sizeof own, &length) == MEMSCOPE_OK &&
                             seccomp_mode(own) == SECCOMP_MODE_DISABLED;
    return !target->entry.filtered || geteuid() == 0 || memscope_refuse(refusal, "seccomp_filter");
}

/* A user's shadow stack would not have the return addresses of injected calls. */
static bool check_status(struct memscope_ruby_target *target, struct memscope_refusal *refusal) {
    char path[32], text[8192];
    size_t length;
    const char *features;
    pid_t pid = target->pid;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    if (memscope_text_file_read(path, text, sizeof text, &length) != MEMSCOPE_OK)
        return memscope_refuse(refusal, "ended");
    features = strstr(text, "x86_Thread_features:");
    if (features != NULL && memmem(features, strcspn(features, "\n"), "shstk", strlen("shstk")) != NULL)
        return memscope_refuse(refusal, "shadow_stack");
    if (seccomp_mode(text) == SECCOMP_MODE_STRICT)
        return memscope_refuse(refusal, "seccomp");
    return seccomp_mode(text) == SECCOMP_MODE_DISABLED || check_filter(target, refusal);
}

bool memscope_ruby_target_find(pid_t pid, struct memscope_ruby_target *target, struct memscope_refusal *refusal) {
    struct objects objects = {.target = target};

    *target =
        (struct memscope_ruby_target){.pid = pid, .process = memscope_descriptor_of_process(pid), .libc_name = "none"};
    if (memscope_process_started(pid, &target->started) != MEMSCOPE_OK)
        return memscope_refuse(refusal, "ended");
    if (!check_status(target, refusal) || !find_objects(&objects, refusal))
        return false;
    if (objects.other_machine)
        return memscope_refuse(refusal, "other_machine");
    if (target->ruby.pid == 0)
        return memscope_refuse(refusal, "no_ruby");
    if (!memscope_remote_text(pid, memscope_remote_module_address(&target->ruby, "ruby_version"), target->version,
                              sizeof target->version) ||
        target->version[strspn(target->version, "0123456789.")] != '\0')
        return memscope_refuse(refusal, "no_ruby");
    if (target->libc.pid == 0)
        return memscope_refuse_for(refusal, "libc_unknown", "%s", target->libc_name);
    return find_places(&objects, refusal);
}

bool memscope_ruby_target_lives(const struct memscope_ruby_target *target) {
    struct pollfd ended = {.fd = target->process, .events = POLLIN};
    uint64_t started;

    return memscope_process_started(target->pid, &started) == MEMSCOPE_OK && started == target->started &&
           poll(&ended, 1, 0) == 0;
}
