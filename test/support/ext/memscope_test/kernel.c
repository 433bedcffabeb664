/* A kernel that refuses: seccomp filters as a container's sandbox installs them, and process-wide switches. */
#include "memscope_test.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* _IOWR('f', 16, struct pm_scan_arg), whose twelve fields are 64 bits wide (linux/fs.h since 6.7). */
#define PAGEMAP_SCAN_REQUEST 0xC0606610u

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define SKIP_UNLESS(value, skipped) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped)
#define ANSWER(action) BPF_STMT(BPF_RET | BPF_K, action)

/* Holds for every thread of the process and for its children, and cannot be undone. */
static void install_filter(struct sock_filter *instructions, unsigned short count) {
    struct sock_fprog program = {.len = count, .filter = instructions};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        rb_sys_fail("PR_SET_NO_NEW_PRIVS");
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        rb_sys_fail("seccomp");
}

/* Host.deny_pagemap_scan! -> nil: the ioctl fails with ENOTTY, as on Linux before 6.7. */
static VALUE host_deny_pagemap_scan(VALUE self) {
    struct sock_filter instructions[] = {
        LOAD(nr),
        SKIP_UNLESS(SYS_ioctl, 3),
        LOAD(args[1]),
        SKIP_UNLESS(PAGEMAP_SCAN_REQUEST, 1),
        ANSWER(SECCOMP_RET_ERRNO | ENOTTY),
        ANSWER(SECCOMP_RET_ALLOW),
    };

    install_filter(instructions, sizeof instructions / sizeof *instructions);
    return Qnil;
}

/* Sets the kernel's answer to this system call, for any arguments. */
static VALUE answer(unsigned syscall_number, unsigned action) {
    struct sock_filter instructions[] = {
        LOAD(nr),
        SKIP_UNLESS(syscall_number, 1),
        ANSWER(action),
        ANSWER(SECCOMP_RET_ALLOW),
    };

    install_filter(instructions, sizeof instructions / sizeof *instructions);
    return Qnil;
}

/* Host.forbid_process_vm_readv! -> nil: the call kills the process, since it would unshare pages of a forked child. */
static VALUE host_forbid_process_vm_readv(VALUE self) {
    return answer(SYS_process_vm_readv, SECCOMP_RET_KILL_PROCESS);
}

/* Host.deny_memfd_create! -> nil: the call fails with ENOSYS, as before Linux 3.17. */
static VALUE host_deny_memfd_create(VALUE self) {
    return answer(SYS_memfd_create, SECCOMP_RET_ERRNO | ENOSYS);
}

/* Host.deny_madvise! -> nil: the call fails with EPERM. */
static VALUE host_deny_madvise(VALUE self) {
    return answer(SYS_madvise, SECCOMP_RET_ERRNO | EPERM);
}

/*
 * Host.deny_fork!(errno) -> nil: from now on, every clone call without an exit signal or other flags fails with errno
 * or, if that is nil, kills the process.
 */
static VALUE host_deny_fork(VALUE self, VALUE error) {
    struct sock_filter instructions[] = {
        LOAD(nr),
        SKIP_UNLESS(SYS_clone, 3),
        LOAD(args[0]),
        SKIP_UNLESS(0, 1),
        ANSWER(NIL_P(error) ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | (NUM2UINT(error) & SECCOMP_RET_DATA)),
        ANSWER(SECCOMP_RET_ALLOW),
    };

    install_filter(instructions, sizeof instructions / sizeof *instructions);
    return Qnil;
}

/* Host.read_in_strict_mode: this thread may only read, write and exit. It reads the standard input for ever. */
static VALUE host_read_in_strict_mode(VALUE self) {
    char byte;

    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0)
        rb_sys_fail("PR_SET_SECCOMP");
    for (;;)
        (void)!read(STDIN_FILENO, &byte, 1);
    return self;
}

/* Host.lock_memory! -> true; false if this process may not lock so much. */
static VALUE host_lock_memory(VALUE self) {
    return mlockall(MCL_CURRENT) == 0 ? Qtrue : Qfalse;
}

/* Host.block_break! -> nil: from now on the program break cannot be raised, as if a static mapping were in its way. */
static VALUE host_block_break(VALUE self) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), next = ((uintptr_t)sbrk(0) + page - 1) & -page;

    if (mmap((void *)next, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != (void *)next)
        rb_sys_fail("mmap");
    return Qnil;
}

/*
 * Host.pin(string) -> nil: reads its bytes by process_vm_readv, which pins their pages. Since Linux 5.19, pinning first
 * copies a page that is shared with a parent or child.
 */
static VALUE host_pin(VALUE self, VALUE string) {
    char copy[4096];

    for (long at = 0; at < RSTRING_LEN(string); at += (long)sizeof copy) {
        long rest = RSTRING_LEN(string) - at;
        struct iovec remote = {RSTRING_PTR(string) + at, rest < (long)sizeof copy ? (size_t)rest : sizeof copy};
        struct iovec local = {copy, sizeof copy};

        if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) < 0)
            rb_sys_fail("process_vm_readv");
    }
    return Qnil;
}

/* Host.close_descriptors(first, last) -> nil: closes these descriptors, whoever owns them, as daemons do. */
static VALUE host_close_descriptors(VALUE self, VALUE first, VALUE last) {
    for (int descriptor = NUM2INT(first); descriptor <= NUM2INT(last); descriptor++)
        close(descriptor);
    return Qnil;
}

/* Host.allow_huge_pages! -> nil: Ruby forbids transparent huge pages for its process at boot. This allows them. */
static VALUE host_allow_huge_pages(VALUE self) {
    if (prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0) != 0)
        rb_sys_fail("PR_SET_THP_DISABLE");
    return Qnil;
}

void init_kernel(VALUE host) {
    rb_define_singleton_method(host, "deny_pagemap_scan!", host_deny_pagemap_scan, 0);
    rb_define_singleton_method(host, "forbid_process_vm_readv!", host_forbid_process_vm_readv, 0);
    rb_define_singleton_method(host, "deny_memfd_create!", host_deny_memfd_create, 0);
    rb_define_singleton_method(host, "deny_madvise!", host_deny_madvise, 0);
    rb_define_singleton_method(host, "deny_fork!", host_deny_fork, 1);
    rb_define_singleton_method(host, "read_in_strict_mode", host_read_in_strict_mode, 0);
    rb_define_singleton_method(host, "lock_memory!", host_lock_memory, 0);
    rb_define_singleton_method(host, "block_break!", host_block_break, 0);
    rb_define_singleton_method(host, "pin", host_pin, 1);
    rb_define_singleton_method(host, "close_descriptors", host_close_descriptors, 2);
    rb_define_singleton_method(host, "allow_huge_pages!", host_allow_huge_pages, 0);
}
