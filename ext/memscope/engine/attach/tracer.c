#include "attach/tracer.h"

#if defined(__x86_64__) || defined(__aarch64__)

#include "attach/copy_calls.h"
#include "attach/postponed_text.h"
#include "attach/remote_memory.h"
#include "attach/tracing.h"
#include "base/descriptors.h"
#include "base/mapped_array.h"
#include "fork/forked_child.h"
#include "kernel/cgroup.h"
#include "kernel/process.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPTS 5
#define MILLISECOND_NS UINT64_C(1000000)
/* Of each attempt: to be isolated and to reach a safe point, then to load the extension; and of all, without pauses. */
#define SAFE_POINT_NS (1000 * MILLISECOND_NS)
#define LOAD_NS (1500 * MILLISECOND_NS)
#define ATTEMPTS_MS 4000
/* After its deadline, for the end of the copy, then for the last message. Then a timer ends the tracer. */
#define GRACE_MS 3000
#define MEBIBYTE (UINT64_C(1) << 20)
/* A fork of this machine's measurements under load: 25 to 95 ms a GiB. */
#define FORK_NS_OF_A_MEBIBYTE UINT64_C(60000)
/* Likewise for each mapping: 2.6 to 3.5 us of processor time where each second one is a fiber's stack. */
#define FORK_NS_OF_A_MAPPING UINT64_C(4000)
/* Page tables, one byte for 512; what the copy itself takes; what the target writes meanwhile. */
#define BYTES_OF_A_TABLE_BYTE 512
#define COPY_BYTES (32 * MEBIBYTE)
/* The next copy of the same process waits for this many times the pause. */
#define REST 10
/* The priority of the tracer, where that is allowed. */
#define HASTE (-20)

struct tracer {
    const struct memscope_tracer_order *order;
    int socket, lock;
    struct memscope_ruby_target target;
    struct memscope_private_copy copy;
    struct memscope_refusal refusal;
    uint64_t evaluate, started_ns, deadline_ns;
    unsigned attempts;
    struct memscope_process_memory memory;
    struct memscope_tracees tracees;
};

/* ---- messages -------------------------------------------------------------------------------------------------- */

/* Sends the bytes (POLLOUT), or receives as many (POLLIN). A reader that is stopped does neither. */
static bool transfer(const struct tracer *tracer, short event, void *bytes, size_t size, uint64_t deadline_ns) {
    struct pollfd ready = {.fd = tracer->socket, .events = event};

    for (size_t done = 0; done < size;) {
        uint64_t now = memscope_trace_now();
        ssize_t count;

        if (now >= deadline_ns || poll(&ready, 1, (int)((deadline_ns - now) / MILLISECOND_NS) + 1) <= 0)
            return false;
        count = event == POLLIN ? recv(tracer->socket, (char *)bytes + done, size - done, 0)
                                : send(tracer->socket, (char *)bytes + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count <= 0)
            return false;
        done += (size_t)count;
    }
    return true;
}

static bool send_all(const struct tracer *tracer, const void *bytes, size_t size) {
    return transfer(tracer, POLLOUT, (void *)(uintptr_t)bytes, size, tracer->deadline_ns + GRACE_MS * MILLISECOND_NS);
}

static bool receive(const struct tracer *tracer, void *bytes, size_t size) {
    return transfer(tracer, POLLIN, bytes, size, tracer->deadline_ns);
}

static bool send_header(const struct tracer *tracer, enum memscope_tracer_message kind, uint64_t length) {
    const struct {
        uint32_t kind, zero;
        uint64_t length;
    } header = {kind, 0, length};

    return send_all(tracer, &header, sizeof header);
}

static bool send_message(const struct tracer *tracer, enum memscope_tracer_message kind, const char *text) {
    return send_header(tracer, kind, strlen(text)) && send_all(tracer, text, strlen(text));
}

/* ---- the price ------------------------------------------------------------------------------------------------- */

static uint64_t known(uint64_t bytes) {
    return bytes == MEMSCOPE_UNKNOWN ? 0 : bytes;
}

static uint64_t headroom_of(const char *pid) {
    struct memscope_cgroup cgroup;

    if (memscope_cgroup_read(pid, "/proc", "/sys/fs/cgroup", &cgroup) != MEMSCOPE_OK ||
        !memscope_cgroup_is_known(&cgroup.hierarchy_headroom))
        return UINT64_MAX;
    return cgroup.hierarchy_headroom.value;
}

/* Refuses a copy that would stop the target for long, or that the target's container has no room for. */
static bool afford(struct tracer *tracer) {
    char pid[16];
    uint64_t own, pause_ms, needed, free_bytes;

    snprintf(pid, sizeof pid, "%d", (int)tracer->order->pid);
    (void)memscope_process_status_read(pid, &tracer->memory);
    own = known(tracer->memory.figures.anonymous_bytes) + known(tracer->memory.figures.shared_memory_bytes);
    pause_ms =
        (own / MEBIBYTE * FORK_NS_OF_A_MEBIBYTE + tracer->target.mappings * FORK_NS_OF_A_MAPPING) / MILLISECOND_NS;
    needed = own / BYTES_OF_A_TABLE_BYTE + COPY_BYTES;
    free_bytes = headroom_of(pid);
    if (tracer->order->pause_limit_ms >= MEMSCOPE_TRACER_ANY_PAUSE)
        return true;
    if (needed > free_bytes)
        return memscope_refuse_for(&tracer->refusal, "no_room", "%llu\n%llu", (unsigned long long)(needed / MEBIBYTE),
                                   (unsigned long long)(free_bytes / MEBIBYTE));
    return pause_ms <= tracer->order->pause_limit_ms ||
           memscope_refuse_for(&tracer->refusal, "pause", "%llu\n%llu", (unsigned long long)pause_ms,
                               (unsigned long long)(needed / MEBIBYTE));
}

/* Whether a library is among the texts of the extension. */
static bool names(int extension, const char *library) {
    struct stat file;
    char *bytes = fstat(extension, &file) == 0 ? mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, extension, 0)
                                               : MAP_FAILED;

    return bytes != MAP_FAILED && memmem(bytes, (size_t)file.st_size, library, strlen(library) + 1) != NULL;
}

/* A copy shares the functions of Ruby, of the same minor version, and of the C library with the extension. */
static bool fits(struct tracer *tracer) {
    const char *ruby = tracer->order->ruby, *version = tracer->target.version;
    size_t length = strlen(ruby);

    if (strncmp(version, ruby, length) != 0 || version[length] != '.')
        return memscope_refuse_for(&tracer->refusal, "other_ruby", "%s", version);
    return tracer->target.is_glibc == names(tracer->order->extension, "libc.so.6") ||
           memscope_refuse_for(&tracer->refusal, "other_libc", "%s", tracer->target.libc_name);
}

/* One tracer for each process: a name in the abstract namespace, which ends with the tracer. */
static bool lock(struct tracer *tracer) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "memscope-copy-%d-%llu", (int)tracer->target.pid,
                          (unsigned long long)tracer->target.started);

    tracer->lock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return tracer->lock < 0 ||
           bind(tracer->lock, (const struct sockaddr *)&name,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0 ||
           memscope_refuse(&tracer->refusal, "busy");
}

/* ---- the copy -------------------------------------------------------------------------------------------------- */

static bool may_try_again(const struct memscope_refusal *refusal) {
    static const char *const passing[] = {"no_safe_point", "copy_failed", "copy_ended",
                                          "copy_slow",     "not_stopped", "no_thread"};

    for (size_t index = 0; index < sizeof passing / sizeof *passing; index++)
        if (strncmp(refusal->text, passing[index], strlen(passing[index])) == 0)
            return true;
    return false;
}

/* A thread that is just beginning has no frame of Ruby yet in which it could evaluate. */
static bool can_evaluate(struct tracer *tracer) {
    static const char nothing[] = "nil";
    struct memscope_copy_answer answer;

    return memscope_private_copy_evaluate(&tracer->copy, tracer->evaluate, nothing, sizeof nothing - 1, &answer) &&
           (!answer.raised || memscope_refuse_for(&tracer->refusal, "no_safe_point", "%s", "a thread that begins"));
}

static uint64_t sooner(uint64_t a_ns, uint64_t b_ns) {
    return a_ns < b_ns ? a_ns : b_ns;
}

static bool make_once(struct tracer *tracer, uint64_t *all_ns) {
    struct memscope_private_copy *copy = &tracer->copy;

    *copy = (struct memscope_private_copy){.target = &tracer->target, .refusal = &tracer->refusal, .pipe = -1};
    if (!memscope_private_copy_make(copy, &tracer->tracees))
        return false;
    *all_ns += copy->pause_ns;
    copy->deadline_ns = sooner(memscope_trace_now() + SAFE_POINT_NS, *all_ns);
    if (!memscope_private_copy_isolate(copy) || !memscope_private_copy_reach_safe_point(copy, tracer->order->forward))
        return false;
    copy->deadline_ns = sooner(memscope_trace_now() + LOAD_NS, *all_ns);
    if (!memscope_private_copy_load(copy, tracer->order->extension, &tracer->evaluate) || !can_evaluate(tracer))
        return false;
    copy->deadline_ns = tracer->deadline_ns;
    return true;
}

static bool make(struct tracer *tracer) {
    uint64_t all_ns = sooner(tracer->started_ns + ATTEMPTS_MS * MILLISECOND_NS, tracer->deadline_ns);

    for (tracer->attempts = 1; tracer->attempts <= ATTEMPTS; tracer->attempts++) {
        const struct timespec wait = {.tv_nsec = (long)(5 * MILLISECOND_NS * tracer->attempts)};

        tracer->refusal.text[0] = '\0';
        if (make_once(tracer, &all_ns))
            return true;
        memscope_private_copy_end(&tracer->copy, &tracer->tracees);
        if (!may_try_again(&tracer->refusal) || memscope_trace_now() > all_ns)
            break;
        nanosleep(&wait, NULL);
    }
    return false;
}

/* Sends what the pipe can hold: a copy that goes on writing still meets its deadline. */
static bool drain(void *context, int pipe) {
    const struct tracer *tracer = context;
    char buffer[MEMSCOPE_COPY_PIPE_BYTES / 16];
    ssize_t count;

    for (int part = 0; part < 16 && (count = read(pipe, buffer, sizeof buffer)) > 0; part++)
        if (!send_header(tracer, MEMSCOPE_TRACER_DUMP, (uint64_t)count) || !send_all(tracer, buffer, (size_t)count))
            return false;
    return recv(tracer->socket, buffer, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

static bool send_answer(const struct tracer *tracer, const struct memscope_copy_answer *answer) {
    char buffer[65536];

    if (!send_header(tracer, answer->raised ? MEMSCOPE_TRACER_RAISED : MEMSCOPE_TRACER_VALUE, answer->length))
        return false;
    for (uint64_t at = 0; at < answer->length;) {
        size_t part = answer->length - at < sizeof buffer ? (size_t)(answer->length - at) : sizeof buffer;

        if (!memscope_remote_read(tracer->copy.pid, answer->bytes + at, buffer, part))
            memset(buffer, 0, part);
        if (!send_all(tracer, buffer, part))
            return false;
        at += part;
    }
    return true;
}

/* Answers until the reader ends the copy or itself. */
static void serve(struct tracer *tracer) {
    static char expression[MEMSCOPE_COPY_EXPRESSION];
    struct memscope_copy_answer answer;
    uint64_t length = 0;

    tracer->copy.drain = drain;
    tracer->copy.context = tracer;
    while (receive(tracer, &length, sizeof length) && length > 0 && length < sizeof expression &&
           receive(tracer, expression, (size_t)length)) {
        if (!memscope_private_copy_evaluate(&tracer->copy, tracer->evaluate, expression, (size_t)length, &answer)) {
            send_message(tracer, MEMSCOPE_TRACER_REFUSED, tracer->refusal.text);
            return;
        }
        if (!drain(tracer, tracer->copy.pipe) || !send_answer(tracer, &answer))
            return;
    }
}

static void send_ready(const struct tracer *tracer) {
    char text[512];

    snprintf(text, sizeof text, "pause_ns=%llu\nfork_ns=%llu\nattempts=%u\nruby=%s\nfile=%d\n",
             (unsigned long long)tracer->copy.pause_ns, (unsigned long long)tracer->copy.fork_ns, tracer->attempts,
             tracer->target.version, tracer->copy.pipe_end);
    send_message(tracer, MEMSCOPE_TRACER_READY, text);
}

static void send_end(const struct tracer *tracer, bool reaped) {
    char text[128];

    snprintf(text, sizeof text, "copy_ms=%llu\nreap_ns=%llu\nreaped=%d\n",
             (unsigned long long)((memscope_trace_now() - tracer->started_ns) / MILLISECOND_NS),
             (unsigned long long)tracer->copy.reap_ns, reaped);
    send_message(tracer, MEMSCOPE_TRACER_ENDED, text);
}

/* Whatever hangs, as a read of the kernel's file on the target's mappings may. */
static void end_after(unsigned deadline_ms) {
    memscope_forked_child_set_deadline(deadline_ms + 2 * GRACE_MS);
}

/* The lock outlives the copy. */
static void rest(const struct tracer *tracer) {
    uint64_t ns = REST * tracer->copy.pause_ns;
    const struct timespec wait = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};

    close(tracer->socket);
    memscope_forked_child_set_deadline(0);
    nanosleep(&wait, NULL);
}

static bool copy_and_serve(struct tracer *tracer) {
    end_after(ATTEMPTS_MS + tracer->order->pause_limit_ms);
    if (!fits(tracer) || !afford(tracer) || !make(tracer))
        return false;
    end_after(tracer->order->deadline_ms);
    send_ready(tracer);
    serve(tracer);
    send_end(tracer, memscope_private_copy_end(&tracer->copy, &tracer->tracees));
    rest(tracer);
    return true;
}

static bool have_evaluated(struct tracer *tracer) {
    struct memscope_postponed_text postponed = {
        .target = &tracer->target, .text = tracer->order->text, .thread = tracer->order->thread};
    char text[128];

    if (*postponed.text != '\0' && !memscope_postponed_text_run(&postponed, &tracer->tracees, tracer->deadline_ns))
        return false;
    snprintf(text, sizeof text, "pause_ns=%llu\nran_ns=%llu\nruby=%s\n", (unsigned long long)postponed.pause_ns,
             (unsigned long long)postponed.ran_ns, tracer->target.version);
    return send_message(tracer, MEMSCOPE_TRACER_READY, text);
}

static void trace(struct tracer *tracer) {
    tracer->lock = -1;
    tracer->refusal.pid = tracer->order->pid;
    tracer->tracees.refusal = &tracer->refusal;
    tracer->started_ns = memscope_trace_now();
    tracer->deadline_ns = tracer->started_ns + tracer->order->deadline_ms * MILLISECOND_NS;
    end_after(tracer->order->deadline_ms);
    memscope_trace_die_at(tracer->order->die_at);
    if (!memscope_ruby_target_find(tracer->order->pid, &tracer->target, &tracer->refusal) || !lock(tracer) ||
        !(tracer->order->text != NULL ? have_evaluated(tracer) : copy_and_serve(tracer)))
        send_message(tracer, MEMSCOPE_TRACER_REFUSED, tracer->refusal.text);
}

/* ---- its start ------------------------------------------------------------------------------------------------- */

/* Runs in a child of a child, so that no process has to wait for the tracer. */
static _Noreturn void live(const struct memscope_tracer_order *order, int socket) {
    struct tracer *tracer;
    sigset_t all;

    if (memscope_clone_quietly() != 0 || !memscope_forked_child_shed(socket, order->extension))
        _exit(0);
    sigfillset(&all);
    sigdelset(&all, SIGALRM); /* of the deadline */
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    setpriority(PRIO_PROCESS, 0, HASTE); /* while it runs, the target may be stopped */
    prctl(PR_SET_NAME, "memscope");
    prctl(PR_SET_PDEATHSIG, 0);
    tracer = memscope_array_map_sparse(1, sizeof *tracer);
    if (tracer == NULL)
        _exit(1);
    tracer->order = order;
    tracer->socket = socket;
    trace(tracer);
    _exit(0);
}

enum memscope_status memscope_tracer_start(const struct memscope_tracer_order *order, int *reader) {
    sigset_t all, before;
    int ends[2], error;
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return memscope_status_of_errno(errno);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    child = memscope_clone_quietly();
    if (child == 0)
        live(order, ends[1]);
    error = errno;
    while (child > 0 && waitpid(child, NULL, __WALL) < 0 && errno == EINTR)
        continue;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    close(ends[1]);
    if (child > 0) {
        *reader = ends[0];
        return MEMSCOPE_OK;
    }
    close(ends[0]);
    return memscope_status_of_errno(error);
}

#else

enum memscope_status memscope_tracer_start(const struct memscope_tracer_order *order, int *socket) {
    (void)order;
    (void)socket;
    return MEMSCOPE_UNSUPPORTED;
}

#endif
