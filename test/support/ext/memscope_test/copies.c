/*
 * Copies as the tracer makes them: the copy-on-write child of a process that has not loaded memscope. It has one thread
 * and no descriptors, loads the extension and evaluates expressions. Here the process makes its own copy, and waits.
 */
#include "memscope_test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the copy. */
#define ANSWER_DESCRIPTOR 100
#define FILE_DESCRIPTOR 101
#define DEADLINE_SECONDS 120

/* The tracer masks every interrupt. From 3.1 to 4.0: the first members of rb_execution_context_t (vm_core.h). */
#define EC_INTERRUPT_MASK 0x24
#define EC_THREAD 0x30
#define THREAD_WORDS 32

static uintptr_t word_at(uintptr_t address) {
    uintptr_t word = 0;
    struct iovec local = {&word, sizeof word}, remote = {(void *)address, sizeof word};

    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == sizeof word ? word : 0;
}

static void mask_interrupts(void) {
    uintptr_t thread = (uintptr_t)RTYPEDDATA_DATA(rb_thread_current());

    for (int index = 0; index < THREAD_WORDS; index++) {
        uintptr_t ec = word_at(thread + index * sizeof(uintptr_t));

        if (ec % sizeof(uintptr_t) == 0 && ec != 0 && word_at(ec + EC_THREAD) == thread) {
            *(uint32_t *)(ec + EC_INTERRUPT_MASK) = UINT32_MAX;
            return;
        }
    }
    _exit(2);
}

/*
 * From now on, a futex call kills the process. Who hands the GVL to another thread, or waits for one, makes such a call
 * as soon as another thread waits for the GVL.
 */
static void forbid_futexes(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(3);
}

static void keep_descriptors(int answer, int file) {
    if (dup2(answer, ANSWER_DESCRIPTOR) < 0 || (file >= 0 && dup2(file, FILE_DESCRIPTOR) < 0))
        _exit(4);
    for (int descriptor = 0; descriptor < 256; descriptor++)
        if (descriptor != ANSWER_DESCRIPTOR && descriptor != FILE_DESCRIPTOR)
            close(descriptor);
}

static void settle_signals(void) {
    sigset_t all;

    signal(SIGALRM, SIG_DFL);
    sigfillset(&all);
    sigdelset(&all, SIGALRM);
    sigprocmask(SIG_SETMASK, &all, NULL);
    alarm(DEADLINE_SECONDS);
}

/* As memscope's base/copy.h declares it. */
struct copy_answer {
    uint64_t bytes, length, raised;
};

static void send_answer(const struct copy_answer *answer) {
    uint64_t head[] = {answer->raised, answer->length};

    if (write(ANSWER_DESCRIPTOR, head, sizeof head) != sizeof head)
        _exit(5);
    for (uint64_t sent = 0; sent < answer->length;) {
        ssize_t count = write(ANSWER_DESCRIPTOR, (const char *)(uintptr_t)answer->bytes + sent, answer->length - sent);

        if (count < 0)
            _exit(5);
        sent += (uint64_t)count;
    }
}

/* Shared with the copy, which first loads the extension. Then the process maps memory in the same place. */
enum stage { LOADING, LOADED, MAPPED };
static atomic_int *stage;

static void live(const char *library, const char *const *expressions, long count, int answer, int file) {
    void *loaded;
    int (*begin)(pid_t);
    void (*evaluate)(const char *, struct copy_answer *);

    settle_signals();
    keep_descriptors(answer, file);
    mask_interrupts();
    forbid_futexes();
    loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (loaded == NULL)
        _exit(6);
    *(void **)&begin = dlsym(loaded, "memscope_copy_begin");
    *(void **)&evaluate = dlsym(loaded, "memscope_copy_evaluate");
    if (begin == NULL || evaluate == NULL || begin(getppid()) != 0)
        _exit(7);
    for (atomic_store(stage, LOADED); atomic_load(stage) != MAPPED;)
        sched_yield();
    for (long index = 0; index < count; index++) {
        struct copy_answer given;

        evaluate(expressions[index], &given);
        send_answer(&given);
    }
    _exit(0);
}

/* [raised, bytes], or nil at the end. Allocates, so it is not called while the copy reads this process's RSS. */
static VALUE next_answer(const char **at, const char *end) {
    uint64_t head[2];
    VALUE bytes;

    if (end - *at < (long)sizeof head)
        return Qnil;
    memcpy(head, *at, sizeof head);
    bytes = rb_utf8_str_new(*at + sizeof head, (long)head[1]);
    *at += sizeof head + head[1];
    return rb_assoc_new(head[0] ? Qtrue : Qfalse, bytes);
}

#define MAX_ANSWER ((size_t)64 << 20)
#define MAPPED_BYTES ((size_t)16 << 20)

static bool has_ended(pid_t copy) {
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)copy, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 || info.si_pid != 0;
}

/* The kernel puts it where it put the extension in the copy: below the lowest mapping of both. */
static void map_in_the_same_place(pid_t copy) {
    void *mapped;

    while (atomic_load(stage) != LOADED && !has_ended(copy))
        sched_yield();
    mapped = mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped != MAP_FAILED)
        memset(mapped, 1, MAPPED_BYTES);
    atomic_store(stage, MAPPED);
}

/* "Rss: 123 kB" of smaps_rollup. */
static uint64_t rss_bytes(void) {
    static char text[4096];
    int file = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text - 1);
    const char *line = length > 0 ? strstr(text, "Rss:") : NULL;

    close(file);
    return line == NULL ? 0 : strtoull(line + 4, NULL, 10) * 1024;
}

static const char **taken_from(VALUE expressions, long count) {
    const char **taken = ALLOC_N(const char *, count);

    for (long index = 0; index < count; index++) {
        VALUE expression = rb_ary_entry(expressions, index);

        taken[index] = StringValueCStr(expression);
    }
    return taken;
}

/*
 * Host.in_copy(path of memscope.so, expressions, file) -> [answers, rss, status]: for each expression, whether it
 * raised, and its bytes. file: nil, or a descriptor, which is 101 in the copy. rss: bytes of this process, which keeps
 * the GVL. It touches no new memory while the copy lives, but for 16 MiB that it maps at the copy's beginning. status:
 * 0, or the number of the signal that ended the copy, or 256 and more if it exited with an error.
 */
static VALUE host_in_copy(VALUE self, VALUE library, VALUE expressions, VALUE file) {
    long count = RARRAY_LEN(expressions);
    const char **taken = taken_from(expressions, count), *path = StringValueCStr(library);
    char *buffer = ALLOC_N(char, MAX_ANSWER);
    size_t length = 0;
    ssize_t received;
    uint64_t rss;
    VALUE answers = rb_ary_new(), answer;
    int ends[2], status;
    pid_t copy;

    if (pipe(ends) != 0)
        rb_sys_fail("pipe");
    memset(buffer, 1, MAX_ANSWER);
    rss_bytes();
    stage = mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stage == MAP_FAILED)
        rb_sys_fail("mmap");
    copy = (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0);
    if (copy == 0)
        live(path, taken, count, ends[1], NIL_P(file) ? -1 : NUM2INT(file));
    close(ends[1]);
    map_in_the_same_place(copy);
    while ((received = read(ends[0], buffer + length, MAX_ANSWER - length)) > 0)
        length += (size_t)received;
    close(ends[0]);
    rss = rss_bytes();
    if (copy < 0 || waitpid(copy, &status, __WALL) != copy)
        rb_sys_fail("clone");
    for (const char *at = buffer; !NIL_P(answer = next_answer(&at, buffer + length));)
        rb_ary_push(answers, answer);
    xfree(buffer);
    xfree(taken);
    RB_GC_GUARD(expressions);
    RB_GC_GUARD(library);
    return rb_ary_new_from_args(3, answers, ULL2NUM(rss),
                                INT2NUM(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status) << 8));
}

void init_copies(VALUE host) {
    rb_define_singleton_method(host, "in_copy", host_in_copy, 3);
}
