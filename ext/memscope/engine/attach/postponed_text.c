#include "attach/postponed_text.h"

#include "attach/remote_memory.h"
#include "attach/remote_place.h"
#include "attach/tracing.h"
#include "base/directory.h"
#include "base/text_file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#define POLL_NS 500000
/* After the main thread has run its jobs. If the text's thread is not there by then, another thread took the job. */
#define TAKEN_NS UINT64_C(20000000)
/* In a context's interrupt_flag and interrupt_mask (vm_core.h). */
#define POSTPONED_JOB_INTERRUPT UINT32_C(4)
#define PAGE UINT64_C(4096)
/* The kernel's struct sigaction, whose first member is the handler, precedes the text. */
#define TEXT_AT UINT64_C(64)
#define SIGNAL_SET_BYTES 8
/* No program can trap it: Ruby knows real-time signals by no name, and its default for them is nothing. */
#define UNTRAPPED_SIGNAL 63
/* Ruby's handlers lie near its functions. */
#define OBJECT_BYTES UINT64_C(0x2000000)

/* ---- the job --------------------------------------------------------------------------------------------------- */

static long call(const struct memscope_postponed_text *postponed, const struct memscope_tracee *tracee, long number,
                 const uint64_t arguments[6]) {
    long result = 0;

    return memscope_tracee_system_call(tracee, &postponed->target->entry, number, arguments, &result, NULL) ? result
                                                                                                            : -EIO;
}

static bool map_room(struct memscope_postponed_text *postponed, const struct memscope_tracee *tracee) {
    size_t size = strlen(postponed->text) + 1;
    uint64_t bytes = (TEXT_AT + size + PAGE - 1) & ~(PAGE - 1);
    const uint64_t arguments[6] = {0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, UINT64_MAX, 0};
    long room = call(postponed, tracee, SYS_mmap, arguments);

    if (room < 0 && room > -(long)PAGE)
        return false;
    postponed->room = (uint64_t)room;
    postponed->room_bytes = bytes;
    return memscope_remote_write(postponed->target->pid, postponed->room + TEXT_AT, postponed->text, size);
}

/* The handler of Ruby itself: one that two of the signals have which Ruby always catches, and that lies in Ruby. */
static uint64_t find_handler(const struct memscope_postponed_text *postponed, const struct memscope_tracee *tracee) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGQUIT};
    const size_t count = sizeof signals / sizeof *signals;
    uint64_t handlers[sizeof signals / sizeof *signals] = {0}, base = postponed->target->ruby.bias;

    for (size_t index = 0; index < count; index++) {
        const uint64_t arguments[6] = {(uint64_t)signals[index], 0, postponed->room, SIGNAL_SET_BYTES, 0, 0};
        uint64_t handler = 0;

        if (call(postponed, tracee, SYS_rt_sigaction, arguments) != 0 ||
            !memscope_remote_read(postponed->target->pid, postponed->room, &handler, sizeof handler) ||
            handler - base > OBJECT_BYTES)
            continue;
        for (size_t earlier = 0; earlier < index; earlier++)
            if (handlers[earlier] == handler)
                return handler;
        handlers[index] = handler;
    }
    return 0;
}

/*
 * The job is added even if one of the same function waits, with the text of a tracer that was killed before Ruby was
 * told to look at its jobs. Before Ruby 3.3, its variant for "one" job would leave this one out.
 */
static bool post(void *context, struct memscope_tracees *tracees) {
    struct memscope_postponed_text *postponed = context;
    const struct memscope_tracee *tracee = &tracees->list[0];
    const struct memscope_ruby_target *target = postponed->target;
    uint64_t job[3] = {0, target->functions.evaluate, 0};
    const uint64_t signal[3] = {UNTRAPPED_SIGNAL, 0, 0};

    if (postponed->room == 0 && map_room(postponed, tracee))
        postponed->handler = find_handler(postponed, tracee);
    job[2] = postponed->room + TEXT_AT;
    postponed->context = memscope_ruby_context(target, target->pid, &tracee->registers);
    postponed->posts++;
    return (postponed->handler != 0 &&
            memscope_tracee_function(tracee, &target->entry, target->functions.post_job, job) &&
            memscope_tracee_function(tracee, &target->entry, postponed->handler, signal)) ||
           memscope_refuse_for(tracees->refusal, "no_stack", "%d", (int)tracee->id);
}

/* Whether the main thread has yet to look for jobs or, with the interrupts for them masked, runs them. */
static bool is_pending(const struct memscope_postponed_text *postponed) {
    uint32_t flag_and_mask[2];

    return postponed->context == 0 ||
           !memscope_remote_read(postponed->target->pid, postponed->context + MEMSCOPE_CONTEXT_INTERRUPTS,
                                 flag_and_mask, sizeof flag_and_mask) ||
           ((flag_and_mask[0] | flag_and_mask[1]) & POSTPONED_JOB_INTERRUPT) != 0;
}

/* ---- visits ---------------------------------------------------------------------------------------------------- */

static bool unmap_room(void *context, struct memscope_tracees *tracees) {
    const struct memscope_postponed_text *postponed = context;
    const uint64_t arguments[6] = {postponed->room, postponed->room_bytes, 0, 0, 0, 0};

    return call(postponed, &tracees->list[0], SYS_munmap, arguments) == 0;
}

static bool refuse_busy(void *context, struct memscope_tracees *tracees) {
    char place[MEMSCOPE_PLACE_BYTES];

    (void)context;
    memscope_remote_place(tracees->pid, memscope_registers_place(&tracees->list[0].registers), place, sizeof place);
    return memscope_refuse_for(tracees->refusal, "no_safe_point", "%s", place);
}

static bool visit(struct memscope_postponed_text *postponed, struct memscope_tracees *tracees,
                  bool (*work)(void *context, struct memscope_tracees *tracees)) {
    return memscope_tracees_visit(tracees, postponed->target, true, work, postponed, &postponed->pause_ns);
}

struct search {
    pid_t pid;
    const char *name;
    bool found;
};

static bool look_for_thread(int thread, void *context) {
    struct search *search = context;
    char path[64], name[32];
    size_t length;

    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", (int)search->pid, thread);
    if (memscope_text_file_read(path, name, sizeof name, &length) == MEMSCOPE_OK) {
        name[strcspn(name, "\n")] = '\0';
        search->found = strcmp(name, search->name) == 0;
    }
    return !search->found;
}

/* Until the deadline, or until the job must have run without effect. */
static bool await_thread(struct memscope_postponed_text *postponed, uint64_t deadline_ns) {
    struct search search = {.pid = postponed->target->pid, .name = postponed->thread};
    const struct timespec wait = {.tv_nsec = POLL_NS};
    uint64_t start = memscope_trace_now(), pending_ns = start, now = start;
    char path[32];

    snprintf(path, sizeof path, "/proc/%d/task", (int)postponed->target->pid);
    while (!search.found && now < deadline_ns && now < pending_ns + TAKEN_NS) {
        if (is_pending(postponed))
            pending_ns = now;
        if (memscope_directory_numbers(path, look_for_thread, &search) != MEMSCOPE_OK)
            break;
        nanosleep(&wait, NULL);
        now = memscope_trace_now();
    }
    postponed->ran_ns += now - start;
    return search.found;
}

bool memscope_postponed_text_run(struct memscope_postponed_text *postponed, struct memscope_tracees *tracees,
                                 uint64_t deadline_ns) {
    const char empty = '\0';
    bool posted, ran = false;

    /* All Ractors share their jobs: one that looks for jobs before the main thread does takes this one. */
    while ((posted = visit(postponed, tracees, post)) && !(ran = await_thread(postponed, deadline_ns)) &&
           memscope_trace_now() < deadline_ns)
        continue;
    /* The memory stays if a job may be left, or if the main thread has ended. */
    if (ran && postponed->posts == 1)
        return visit(postponed, tracees, unmap_room) || true;
    if (postponed->room != 0)
        memscope_remote_write(postponed->target->pid, postponed->room + TEXT_AT, &empty, sizeof empty);
    return ran || (posted && visit(postponed, tracees, refuse_busy));
}
