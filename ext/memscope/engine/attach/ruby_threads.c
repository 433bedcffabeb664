#include "attach/ruby_threads.h"

#include "attach/remote_memory.h"

#include <string.h>
#include <sys/syscall.h>

/* Bounds of the search: bytes of a Ractor, which has running_ec at 0x208 (3.1, 3.2) or 0x138 (4.0.5); of a thread. */
#define RACTOR_BYTES ((size_t)0x1000)
#define PART_BYTES ((size_t)0x80)
#define THREAD_BYTES UINT64_C(0x60)
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
    for (size_t index = 0; index < tracees->count; index++)
        if (tracees->list[index].thread != 0 && address - tracees->list[index].thread < THREAD_BYTES)
            return true;
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

/* The tracees of a Ractor are told by its first one. */
static bool is_first_of_ractor(const struct memscope_tracees *tracees, size_t index) {
    uint64_t ractor = tracees->list[index].ractor;

    for (size_t earlier = 0; ractor != 0 && earlier < index; earlier++)
        if (tracees->list[earlier].ractor == ractor)
            return false;
    return ractor != 0;
}

static void find_context(const struct memscope_ruby_target *target, pid_t pid, struct memscope_tracee *tracee) {
    if (tracee->stopped && !tracee->gone)
        tracee->context = memscope_ruby_context(target, pid, &tracee->registers);
    if (tracee->context != 0 && !has_stack(pid, tracee->context))
        tracee->context = 0;
    if (tracee->context == 0)
        return;
    tracee->thread = word_at(pid, tracee->context + MEMSCOPE_CONTEXT_THREAD);
    if (tracee->thread != 0)
        tracee->ractor = word_at(pid, tracee->thread + MEMSCOPE_THREAD_RACTOR);
    if (tracee->ractor % WORD != 0)
        tracee->ractor = 0;
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
                                                     struct memscope_tracees *tracees) {
    struct memscope_tracee *holder = NULL, *chosen = NULL;
    size_t ractors = 0;
    int best = 0;

    for (size_t index = 0; index < tracees->count; index++)
        find_context(target, tracees->pid, &tracees->list[index]);
    for (size_t index = 0; index < tracees->count; index++)
        if (is_first_of_ractor(tracees, index)) {
            holder = holder == NULL ? running_in(tracees, tracees->list[index].ractor) : holder;
            ractors++;
        }
    /*
     * A copy has no thread of the others. To stop them for a collection, it would wait for them: since Ruby 3.3,
     * whatever they do. The numbers of a version have one digit each.
     */
    if (ractors > 1 && strcmp(target->version, "3.3") >= 0) {
        memscope_refuse_for(tracees->refusal, "ractors", "%zu", ractors);
        return NULL;
    }
    for (size_t index = 0; index < tracees->count; index++) {
        int rank = rank_of(tracees, &tracees->list[index], holder);

        if (rank > best) {
            best = rank;
            chosen = &tracees->list[index];
        }
    }
    if (chosen == NULL)
        memscope_refuse(tracees->refusal, "no_thread");
    return chosen;
}
