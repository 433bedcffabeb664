#include "sampling/object_samples.h"

#include "base/scratch.h"

#define AHEAD 16 /* samples */

/* ---- samples ---------------------------------------------------------------------------------------------------- */

struct memscope_object_samples *memscope_object_samples_map(void) {
    return memscope_lasting_map(sizeof(struct memscope_object_samples));
}

void memscope_object_samples_clear(struct memscope_object_samples *samples) {
    memscope_lasting_empty(samples, sizeof *samples);
    memscope_texts_begin(&samples->texts);
    memscope_calls_begin(&samples->calls, &samples->texts);
}

/*
 * A pass over the list that keeps some samples, those of old objects first, and leaves the dropped ones behind them.
 * Samples stay in the order of their allocation, except that a sample whose object becomes old changes places with the
 * first young one. Neighbours in the list are then neighbours in memory, which makes a sweep faster.
 */
struct pass {
    uint32_t old, kept;
};

static void swap(struct memscope_object_samples *samples, uint32_t one, uint32_t other) {
    struct memscope_object_sample sample = samples->list[one];

    if (one == other)
        return;
    samples->list[one] = samples->list[other];
    samples->list[other] = sample;
}

static void keep(struct memscope_object_samples *samples, struct pass *pass, uint32_t index, bool old) {
    swap(samples, index, pass->kept);
    if (old)
        swap(samples, pass->kept, pass->old++);
    pass->kept++;
}

static void end_pass(struct memscope_object_samples *samples, struct pass pass) {
    samples->unreleased += samples->count - pass.kept;
    samples->count = pass.kept;
    samples->old = pass.old;
}

static void release_last(struct memscope_object_samples *samples) {
    const struct memscope_object_sample *sample = &samples->list[samples->count + --samples->unreleased];

    memscope_call_release(&samples->calls, &samples->texts, sample->stack);
    memscope_text_release(&samples->texts, sample->class_name);
    memscope_text_release(&samples->texts, sample->thread);
}

/* Returns true if dropped samples may take room that new stacks and texts need. A text takes two or three cells. */
static bool crowded(const struct memscope_object_samples *samples) {
    return samples->calls.count > MEMSCOPE_CALL_NODES / 2 || samples->texts.count > MEMSCOPE_TEXT_CELLS / 6;
}

void memscope_object_samples_release(struct memscope_object_samples *samples) {
    for (uint32_t left = MEMSCOPE_RELEASED_AT_ONCE; samples->unreleased > 0 && (left > 0 || crowded(samples)); left--)
        release_last(samples);
}

static void thin(struct memscope_object_samples *samples, struct memscope_sampling_plan *plan) {
    struct pass pass = {0};

    for (uint32_t index = 0; index < samples->count; index++) {
        samples->list[index].weight *= 2;
        if (!memscope_plan_coin(plan))
            keep(samples, &pass, index, index < samples->old);
    }
    end_pass(samples, pass);
    plan->interval *= 2;
    samples->thinned++;
}

void memscope_object_samples_make_room(struct memscope_object_samples *samples, uint32_t room,
                                       struct memscope_sampling_plan *plan) {
    if (MEMSCOPE_OBJECT_SAMPLES - samples->count < room)
        thin(samples, plan);
    else if (samples->count < MEMSCOPE_OBJECT_SAMPLES / 4 && plan->interval > MEMSCOPE_FIRST_INTERVAL)
        plan->interval /= 2;
    memscope_object_samples_release(samples);
}

void memscope_object_samples_add(struct memscope_object_samples *samples, struct memscope_object_sample sample) {
    samples->taken++;
    if (samples->count == MEMSCOPE_OBJECT_SAMPLES) {
        samples->dropped++;
        return;
    }
    if (samples->count + samples->unreleased == MEMSCOPE_OBJECT_SAMPLES)
        release_last(samples);
    samples->list[samples->count + samples->unreleased] = samples->list[samples->count];
    samples->list[samples->count++] = sample;
}

/* ---- garbage collections ---------------------------------------------------------------------------------------- */

/* An old object that has become WB-unprotected is young after a major GC. */
void memscope_object_samples_sweep(struct memscope_object_samples *samples, bool minor,
                                   enum memscope_object_age (*age_of)(uintptr_t address)) {
    uint32_t first = minor ? samples->old : 0;
    struct pass pass = {.old = first, .kept = first};

    for (uint32_t index = first; index < samples->count; index++) {
        enum memscope_object_age age = age_of(samples->list[index].address);

        if (index + AHEAD < samples->count)
            __builtin_prefetch((const void *)samples->list[index + AHEAD].address);
        if (age != MEMSCOPE_OBJECT_DEAD)
            keep(samples, &pass, index, age == MEMSCOPE_OBJECT_OLD && !samples->list[index].pending);
    }
    end_pass(samples, pass);
}

void memscope_object_samples_forget(struct memscope_object_samples *samples, bool minor) {
    uint32_t kept = minor ? samples->old : 0;

    samples->dropped += samples->count - kept;
    end_pass(samples, (struct pass){.old = kept, .kept = kept});
}

void memscope_object_samples_forget_window(struct memscope_object_samples *samples, uint32_t window) {
    struct pass pass = {0};

    for (uint32_t index = 0; index < samples->count; index++)
        if (samples->list[index].window != window)
            keep(samples, &pass, index, index < samples->old);
    end_pass(samples, pass);
}

void memscope_object_samples_move(struct memscope_object_samples *samples, uintptr_t (*moved)(uintptr_t address)) {
    for (uint32_t index = 0; index < samples->count; index++)
        samples->list[index].address = moved(samples->list[index].address);
}
