#include "values.h"

#include "ruby/gc_pause.h"

/* A full GC takes as long as this many steps of the work below for each object. */
#define STEPS_OF_AN_OBJECT 300
#define STEPS 4096
#define BATCHES 8

/* Each step needs the result of the one before: a multiplication and an addition, 4 or 5 cycles. */
static uint64_t work(uint64_t state) {
    for (int left = STEPS; left > 0; left--)
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return state;
}

/* The fastest batch's time, since another process may run during the others. */
static uint64_t ns_of_work(void) {
    volatile uint64_t state = 1;
    uint64_t least = UINT64_MAX;

    for (int batch = 0; batch < BATCHES; batch++) {
        uint64_t start = memscope_now_ns(), took;

        state = work(state);
        took = memscope_now_ns() - start;
        if (took < least)
            least = took;
    }
    return least;
}

uint64_t memscope_gc_predicted_ns(void) {
    return rb_gc_stat(memscope_symbol("heap_live_slots")) * ns_of_work() * STEPS_OF_AN_OBJECT / STEPS;
}
