#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#include <sys/syscall.h>

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 0x0001U
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 and newer may refuse a memfd without it (vm.memfd_noexec) */
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434 /* on every architecture but Alpha, whose headers have it */
#endif

/* At most this many open descriptors are noted. Children inherit the others. */
#define SLOTS 256
/* Maximum waits, of WAIT_NS each: of a fork for threads that are opening a descriptor, and of these for a fork. */
#define WAITS_OF_A_FORK 4000
#define WAITS_FOR_A_FORK 10000
#define WAIT_NS 20000

static atomic_int noted[SLOTS]; /* descriptor + 1, 0 if free */
static atomic_int opening;      /* threads between enter and leave */
static atomic_int forking;      /* forks between before_fork and after_fork */
static atomic_int copying;      /* forks that have stopped waiting: memory is being copied */
static _Atomic(pid_t) owner;    /* pid of the process whose state this is */

static void wait_a_moment(void) {
    const struct timespec moment = {0, WAIT_NS};

    nanosleep(&moment, NULL);
}

static void begin_anew(void) {
    for (int slot = 0; slot < SLOTS; slot++)
        atomic_store(&noted[slot], 0);
    atomic_store(&opening, 0);
    atomic_store(&forking, 0);
    atomic_store(&copying, 0);
}

/* A child made by the bare system call runs no atfork handler: discards the state inherited from its parent. */
static void forget_inherited(void) {
    pid_t before = atomic_load(&owner), pid = getpid();

    if (before != pid && atomic_compare_exchange_strong(&owner, &before, pid))
        begin_anew();
}

/*
 * Until leave, forks wait for this thread. If a fork is under way, waits for its end, but gives up after about a
 * second: another library's atfork handler may wait for a lock of this thread.
 */
static void enter(void) {
    forget_inherited();
    for (int waits = 0; waits < WAITS_FOR_A_FORK; waits++) {
        atomic_fetch_add(&opening, 1);
        if (atomic_load(&forking) == 0)
            return;
        atomic_fetch_sub(&opening, 1);
        wait_a_moment();
    }
    atomic_fetch_add(&opening, 1);
}

static void leave(void) {
    atomic_fetch_sub(&opening, 1);
}

/*
 * Notes nothing while a fork that did not wait for this thread copies memory: in the child, a noted number could refer
 * to another file.
 */
static void note(int descriptor) {
    for (int slot = 0; descriptor >= 0 && slot < SLOTS && atomic_load(&copying) == 0; slot++) {
        int none = 0;

        if (atomic_compare_exchange_strong(&noted[slot], &none, descriptor + 1))
            return;
    }
}

static void before_fork(void) {
    forget_inherited();
    atomic_fetch_add(&forking, 1);
    for (int waits = 0; waits < WAITS_OF_A_FORK && atomic_load(&opening) > 0; waits++)
        wait_a_moment();
    atomic_fetch_add(&copying, 1);
}

static void after_fork(void) {
    atomic_fetch_sub(&copying, 1);
    atomic_fetch_sub(&forking, 1);
}

static void in_child(void) {
    for (int slot = 0; slot < SLOTS; slot++) {
        int descriptor = atomic_load(&noted[slot]) - 1;

        if (descriptor >= 0)
            close(descriptor);
    }
    atomic_store(&owner, getpid());
    begin_anew();
}

void memscope_descriptors_guard(void) {
    pthread_atfork(before_fork, after_fork, in_child);
}

int memscope_descriptor_open(const char *path, int flags) {
    int descriptor;

    enter();
    descriptor = open(path, flags | O_CLOEXEC, 0600);
    note(descriptor);
    leave();
    return descriptor;
}

/*
 * Removes the note before closing, since another thread may get the number as soon as it is closed. Leaves errno alone.
 */
void memscope_descriptor_close(int descriptor) {
    int error = errno;

    enter();
    for (int slot = 0; slot < SLOTS; slot++) {
        int found = descriptor + 1;

        if (atomic_compare_exchange_strong(&noted[slot], &found, 0))
            break;
    }
    close(descriptor);
    leave();
    errno = error;
}

/* Uses syscall because glibc has memfd_create and its flags only since 2.27. */
int memscope_descriptor_of_memory(const char *name) {
    int descriptor;

    enter();
    descriptor = (int)syscall(SYS_memfd_create, name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (descriptor < 0 && errno == EINVAL)
        descriptor = (int)syscall(SYS_memfd_create, name, MFD_CLOEXEC);
    note(descriptor);
    leave();
    return descriptor;
}

int memscope_descriptor_of_process(pid_t pid) {
    int descriptor;

    enter();
    descriptor = (int)syscall(SYS_pidfd_open, pid, 0);
    note(descriptor);
    leave();
    return descriptor;
}

bool memscope_descriptors_of_pipe(int ends[2]) {
    bool made;

    enter();
    made = pipe2(ends, O_CLOEXEC) == 0;
    if (made) {
        note(ends[0]);
        note(ends[1]);
    }
    leave();
    return made;
}

uint64_t memscope_file_size_limit(void) {
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur;
}
