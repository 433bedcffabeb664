#include "attach/ruby_threads.h"

#include "attach/remote_memory.h"

#include <string.h>
#include <sys/syscall.h>

/* Bounds of the search: bytes of a Ractor, which has running_ec at 0x208 (3.1, 3.2) or 0x138 (4.0.5); of a thread. */
#define RACTOR_BYTES ((size_t)0x1000)
#define PART_BYTES ((size_t)0x80)
#define THREAD_BYTES UINT64_C(0x60)
#define MAX_RACTORS 64
#define MAX_STACK_WORDS (UINT64_C(1) << 32)
#define WORD sizeof(uint64_t)

uint64_t memscope_ruby_context(const struct memscope_ruby_target *target, pid_t pid,
                               const struct memscope_registers *registers) {
    uint64_t base = memscope_registers_thread_pointer(registers), table, context = 0;
    const struct memscope_thread_local *place = &target->context;
    uint64_t entry = place->module * (target->is_glibc ? 2 * WORD : WORD);

    if (place->module != 0 && (!memscope_remote_read(pid, base + MEMSCOPE_DTV_OFFSET, &table, sizeof table) ||
                               !memscope_remote_read(pid, table + entry, &base, sizeof base)))
        return 0;
    if (base == 0 || base == UINT64_MAX || !memscope_remote_read(pid, base + place->offset, &context, sizeof context))
        return 0;
    return context;
}

static uint64_t word_at(pid_t pid, uint64_t address) {
    uint64_t word = 0;

    return memscope_remote_read(pid, address, &word, sizeof word) ? word : 0;
}

static uint64_t thread_of(pid_t pid, uint64_t context) {
    return context == 0 ? 0 : word_at(pid, context + MEMSCOPE_CONTEXT_THREAD);
}

static uint64_t ractor_of(pid_t pid, uint64_t context) {
    uint64_t thread = thread_of(pid, context);

    return thread == 0 ? 0 : word_at(pid, thread + MEMSCOPE_THREAD_RACTOR);
}

/*
 * Ruby keeps the native thread of a thread that has ended, for another one, and its context, which may be freed: that
 * has no stack, nor has one whose thread is just beginning. A context begins with the address and the words of its
 * stack, and its last frame.
 */
static bool has_stack(pid_t pid, uint64_t context) {
    uint64_t words[3];

    return memscope_remote_read(pid, context, words, sizeof words) && words[0] != 0 && words[1] < MAX_STACK_WORDS &&
           words[2] > words[0] && words[2] < words[0] + words[1] * WORD;
}

static struct memscope_tracee *with_context(struct memscope_tracees *tracees, uint64_t context) {
    for (size_t index = 0; context != 0 && index < tracees->count; index++)
        if (tracees->list[index].context == context)
            return &tracees->list[index];
    return NULL;
}

static bool lies_in_thread(const struct memscope_tracees *tracees, uint64_t address) {
    for (size_t index = 0; index < tracees->count; index++) {
        uint64_t thread = thread_of(tracees->pid, tracees->list[index].context);

        if (thread != 0 && address - thread < THREAD_BYTES)
            return true;
    }
    return false;
}

/*
 * The thread that holds the GVL of this Ractor, or held it last: its running_ec, the only word of the Ractor, outside
 * the threads that may lie in it, that is a thread's context.
 */
static struct memscope_tracee *running_in(struct memscope_tracees *tracees, uint64_t ractor) {
    uint64_t words[PART_BYTES / WORD];

    for (size_t at = 0; at < RACTOR_BYTES; at += sizeof words) {
        if (!memscope_remote_read(tracees->pid, ractor + at, words, sizeof words))
            return NULL;
        for (size_t index = 0; index < sizeof words / WORD; index++) {
            struct memscope_tracee *found = with_context(tracees, words[index]);

            if (found != NULL && !lies_in_thread(tracees, ractor + at + index * WORD))
                return found;
        }
    }
    return NULL;
}

static struct memscope_tracee *holder_of_gvl(struct memscope_tracees *tracees) {
    struct memscope_tracee *running = NULL;
    uint64_t last = 0;

    for (size_t index = 0; running == NULL && index < tracees->count; index++) {
        uint64_t ractor = ractor_of(tracees->pid, tracees->list[index].context);

        if (ractor == last || ractor % WORD != 0)
            continue;
        running = running_in(tracees, ractor);
        last = ractor;
    }
    return running;
}

static bool is_among(const uint64_t *list, size_t count, uint64_t value) {
    for (size_t index = 0; index < count; index++)
        if (list[index] == value)
            return true;
    return false;
}

/* Ractors with a native thread. At most MAX_RACTORS are told apart. */
static size_t count_ractors(const struct memscope_tracees *tracees) {
    uint64_t known[MAX_RACTORS];
    size_t count = 0;

    for (size_t index = 0; count < MAX_RACTORS && index < tracees->count; index++) {
        uint64_t ractor = ractor_of(tracees->pid, tracees->list[index].context);

        if (ractor != 0 && ractor % WORD == 0 && !is_among(known, count, ractor))
            known[count++] = ractor;
    }
    return count;
}

/*
 * A copy has no thread of the others. To stop them for a collection, it would wait for them: since Ruby 3.3, whatever
 * they do. The numbers of a version have one digit each.
 */
static bool refuse_ractors(const struct memscope_ruby_target *target, const struct memscope_tracees *tracees,
                           struct memscope_refusal *refusal) {
    size_t count = strcmp(target->version, "3.3") < 0 ? 1 : count_ractors(tracees);

    if (count > 1)
        memscope_refuse_for(refusal, "ractors", "%zu", count);
    return count > 1;
}

/*
 * How well calls can be made in a thread, 0 for not at all. The holder of the GVL first if it runs, then threads that
 * are blocked, if possible not in a futex: the holder, the main thread, others.
 */
static int rank_of(const struct memscope_tracees *tracees, const struct memscope_tracee *tracee,
                   const struct memscope_tracee *holder) {
    int rank = tracee == holder ? 3 : tracee->id == tracees->pid ? 2 : 1;

    if (!tracee->stopped || tracee->gone || tracee->context == 0)
        return 0;
    if (!memscope_registers_blocked(&tracee->registers))
        return tracee == holder ? 7 : 0;
    return memscope_registers_system_call(&tracee->registers) == SYS_futex ? rank : rank + 3;
}

struct memscope_tracee *memscope_ruby_threads_choose(const struct memscope_ruby_target *target,
                                                     struct memscope_tracees *tracees,
                                                     struct memscope_refusal *refusal) {
    struct memscope_tracee *holder, *chosen = NULL;
    int best = 0;

    for (size_t index = 0; index < tracees->count; index++) {
        struct memscope_tracee *tracee = &tracees->list[index];

        if (tracee->stopped && !tracee->gone)
            tracee->context = memscope_ruby_context(target, tracees->pid, &tracee->registers);
        if (tracee->context != 0 && !has_stack(tracees->pid, tracee->context))
            tracee->context = 0;
    }
    if (refuse_ractors(target, tracees, refusal))
        return NULL;
    holder = holder_of_gvl(tracees);
    for (size_t index = 0; index < tracees->count; index++) {
        int rank = rank_of(tracees, &tracees->list[index], holder);

        if (rank > best) {
            best = rank;
            chosen = &tracees->list[index];
        }
    }
    if (chosen == NULL)
        memscope_refuse(refusal, "no_thread");
    return chosen;
}
