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

static void release(struct memscope_object_samples *samples, const struct memscope_object_sample *sample) {
    memscope_call_release(&samples->calls, &samples->texts, sample->stack);
    memscope_text_release(&samples->texts, sample->class_name);
    memscope_text_release(&samples->texts, sample->thread);
}

/* The last old sample fills the gap that an old one leaves; the last sample of all fills the gap that remains. */
void memscope_object_samples_drop(struct memscope_object_samples *samples, uint32_t index) {
    release(samples, &samples->list[index]);
    if (index < samples->old) {
        samples->list[index] = samples->list[--samples->old];
        index = samples->old;
    }
    samples->list[index] = samples->list[--samples->count];
}

/* From the last to the first: the sample that fills a gap has been visited already. */
static void thin(struct memscope_object_samples *samples, struct memscope_sampling_plan *plan) {
    for (uint32_t index = samples->count; index-- > 0;) {
        if (memscope_plan_coin(plan))
            memscope_object_samples_drop(samples, index);
        else
            samples->list[index].weight *= 2;
    }
    plan->interval *= 2;
    samples->thinned++;
}

void memscope_object_samples_make_room(struct memscope_object_samples *samples, uint32_t room,
                                       struct memscope_sampling_plan *plan) {
    if (MEMSCOPE_OBJECT_SAMPLES - samples->count < room)
        thin(samples, plan);
    else if (samples->count < MEMSCOPE_OBJECT_SAMPLES / 4 && plan->interval > MEMSCOPE_FIRST_INTERVAL)
        plan->interval /= 2;
}

void memscope_object_samples_add(struct memscope_object_samples *samples, struct memscope_object_sample sample) {
    samples->taken++;
    if (samples->count == MEMSCOPE_OBJECT_SAMPLES) {
        samples->dropped++;
        return;
    }
    samples->list[samples->count++] = sample;
}

/* ---- garbage collections ---------------------------------------------------------------------------------------- */

static void grow_old(struct memscope_object_samples *samples, uint32_t index) {
    struct memscope_object_sample sample = samples->list[index];

    samples->list[index] = samples->list[samples->old];
    samples->list[samples->old++] = sample;
}

static void grow_young(struct memscope_object_samples *samples, uint32_t index) {
    struct memscope_object_sample sample = samples->list[index];

    samples->list[index] = samples->list[--samples->old];
    samples->list[samples->old] = sample;
}

/* Prefetches a sample's object: a sweep spends most of its time on cache misses at objects. */
static void fetch(const struct memscope_object_samples *samples, uint32_t index) {
    __builtin_prefetch((const void *)samples->list[index].address);
}

/* An old object that has lost its write barrier is young after a major GC. */
static void sweep_old(struct memscope_object_samples *samples, enum memscope_object_age (*age_of)(uintptr_t address)) {
    for (uint32_t index = samples->old; index-- > 0;) {
        enum memscope_object_age age;

        fetch(samples, index < AHEAD ? 0 : index - AHEAD);
        age = age_of(samples->list[index].address);
        if (age == MEMSCOPE_OBJECT_DEAD)
            memscope_object_samples_drop(samples, index);
        else if (age == MEMSCOPE_OBJECT_YOUNG)
            grow_young(samples, index);
    }
}

void memscope_object_samples_sweep(struct memscope_object_samples *samples, bool minor,
                                   enum memscope_object_age (*age_of)(uintptr_t address)) {
    uint32_t index;

    if (!minor)
        sweep_old(samples, age_of);
    for (index = samples->old; index < samples->count;) {
        enum memscope_object_age age = age_of(samples->list[index].address);

        if (age == MEMSCOPE_OBJECT_DEAD) {
            memscope_object_samples_drop(samples, index);
            continue;
        }
        if (age == MEMSCOPE_OBJECT_OLD && !samples->list[index].pending)
            grow_old(samples, index);
        index++;
    }
}

void memscope_object_samples_forget(struct memscope_object_samples *samples, bool minor) {
    uint32_t kept = minor ? samples->old : 0;

    samples->dropped += samples->count - kept;
    while (samples->count > kept)
        memscope_object_samples_drop(samples, samples->count - 1);
}

void memscope_object_samples_forget_window(struct memscope_object_samples *samples, uint32_t window) {
    for (uint32_t index = samples->count; index-- > 0;)
        if (samples->list[index].window == window)
            memscope_object_samples_drop(samples, index);
}

void memscope_object_samples_move(struct memscope_object_samples *samples, uintptr_t (*moved)(uintptr_t address)) {
    for (uint32_t index = 0; index < samples->count; index++)
        samples->list[index].address = moved(samples->list[index].address);
}
