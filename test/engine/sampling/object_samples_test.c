/* The table of sampled objects: what it drops and keeps, in which order, and when texts and stacks are released. */
#include "sampling/object_samples.h"

#include "../expect.h"

#include <math.h>
#include <string.h>

static struct memscope_object_samples *samples;
static struct memscope_sampling_plan plan;

static uint32_t text(const char *bytes) {
    return memscope_text_add(&samples->texts, bytes, strlen(bytes));
}

static void begin(void) {
    memscope_object_samples_clear(samples);
    memscope_plan_begin(&plan, 0.01, 15, 0, 1);
}

static void add(uintptr_t address) {
    memscope_object_samples_add(samples, (struct memscope_object_sample){.address = address, .weight = 50});
}

static bool has(uintptr_t address) {
    for (uint32_t index = 0; index < samples->count; index++)
        if (samples->list[index].address == address)
            return true;
    return false;
}

/* ---- texts and stacks ------------------------------------------------------------------------------------------- */

static void test_a_text_is_kept_once_and_goes_with_its_last_user(void) {
    char read[MEMSCOPE_TEXT_LIMIT], lengthy[3000];
    uint32_t first, second;

    begin();
    first = text("Order");
    EXPECT(first != 0 && text("Order") == first && text("") != first);
    EXPECT(memscope_text_copy(&samples->texts, first, read) == 5 && memcmp(read, "Order", 5) == 0);
    memset(lengthy, 'x', sizeof lengthy);
    second = memscope_text_add(&samples->texts, lengthy, sizeof lengthy);
    EXPECT(memscope_text_copy(&samples->texts, second, read) == MEMSCOPE_TEXT_LIMIT);
    EXPECT(memcmp(read, lengthy, sizeof read) == 0);
    memscope_text_release(&samples->texts, first);
    EXPECT(samples->texts.count == 1 + 3);
    memscope_text_release(&samples->texts, first);
    EXPECT(samples->texts.count == 1 + 2 && text("Order") == first); /* in the same cell */
}

static void test_texts_that_find_no_room(void) {
    char name[MEMSCOPE_TEXT_LIMIT];
    uint32_t number, last = 0, made = 0;

    begin();
    for (;; made++, last = number) {
        snprintf(name, sizeof name, "a name that takes two cells of the table, number %u", made);
        number = text(name);
        if (number == MEMSCOPE_NO_ROOM)
            break;
    }
    EXPECT(1 + made == samples->texts.count && made >= MEMSCOPE_TEXT_CELLS / 2 - 2);
    memscope_text_release(&samples->texts, number);
    memscope_text_release(&samples->texts, last);
    EXPECT(text(name) != MEMSCOPE_NO_ROOM);
    EXPECT(memscope_text_copy(&samples->texts, MEMSCOPE_NO_ROOM, name) == 9 && memcmp(name, "[no room]", 9) == 0);
}

static uint32_t stack(const char *outer, const char *inner) {
    uint32_t first = text(outer), second = text(inner), node;

    node = memscope_call_add(&samples->calls, &samples->texts, 0, first, 1);
    node = memscope_call_add(&samples->calls, &samples->texts, node, second, 2);
    memscope_text_release(&samples->texts, first);
    memscope_text_release(&samples->texts, second);
    return node;
}

static void test_stacks_share_their_callers(void) {
    uint32_t first, second;

    begin();
    first = stack("main", "save");
    second = stack("main", "load");
    EXPECT(first != second && stack("main", "save") == first);
    EXPECT(samples->calls.count == 1 + 3 && samples->texts.count == 1 + 3);
    memscope_call_release(&samples->calls, &samples->texts, first);
    memscope_call_release(&samples->calls, &samples->texts, first);
    EXPECT(samples->calls.count == 1 + 2 && samples->texts.count == 1 + 2);
    memscope_call_release(&samples->calls, &samples->texts, second);
    EXPECT(samples->calls.count == 1 && samples->texts.count == 1);
}

static void test_lines_of_long_files(void) {
    uint32_t frame, far, further;

    begin();
    frame = text("generated");
    far = memscope_call_add(&samples->calls, &samples->texts, 0, frame, 1000000);
    further = memscope_call_add(&samples->calls, &samples->texts, 0, frame, UINT32_MAX);
    EXPECT(samples->calls.nodes[far].line == 1000000 && samples->calls.nodes[further].line == (1 << 28) - 1);
    EXPECT(memscope_call_add(&samples->calls, &samples->texts, 0, frame, UINT32_MAX) == further);
    memscope_call_release(&samples->calls, &samples->texts, further);
    memscope_call_release(&samples->calls, &samples->texts, further);
    memscope_call_release(&samples->calls, &samples->texts, far);
    EXPECT(samples->calls.count == 1);
}

static void test_stacks_that_find_no_room(void) {
    uint32_t frame, node = 0, last = 0;

    begin();
    frame = text("deep");
    for (uint32_t line = 0; line < MEMSCOPE_CALL_NODES - 2; line++)
        last = memscope_call_add(&samples->calls, &samples->texts, 0, frame, line);
    EXPECT(last != 0 && samples->calls.count == MEMSCOPE_CALL_NODES - 1);
    memscope_call_retain(&samples->calls, last);
    node = memscope_call_add(&samples->calls, &samples->texts, last, frame, 0);
    EXPECT(node == MEMSCOPE_NO_ROOM && samples->calls.nodes[last].users == 1); /* its use is given back */
    EXPECT(samples->calls.nodes[node].frame == MEMSCOPE_NO_ROOM && samples->calls.nodes[node].caller == 0);
    memscope_call_release(&samples->calls, &samples->texts, node);
    memscope_call_release(&samples->calls, &samples->texts, last);
    EXPECT(memscope_call_add(&samples->calls, &samples->texts, 0, frame, UINT32_MAX) == last);
}

/* ---- garbage collections ---------------------------------------------------------------------------------------- */

/* Addresses below 1,000 die, those below 2,000 stay young. */
static enum memscope_object_age by_address(uintptr_t address) {
    return address < 1000 ? MEMSCOPE_OBJECT_DEAD : address < 2000 ? MEMSCOPE_OBJECT_YOUNG : MEMSCOPE_OBJECT_OLD;
}

static enum memscope_object_age all_dead(uintptr_t address) {
    (void)address;
    return MEMSCOPE_OBJECT_DEAD;
}

static enum memscope_object_age all_young(uintptr_t address) {
    (void)address;
    return MEMSCOPE_OBJECT_YOUNG;
}

static void plant(void) {
    begin();
    for (uintptr_t number = 1; number <= 10; number++) {
        add(number);
        add(1000 + number);
        add(2000 + number);
    }
}

static void test_the_dead_go_and_the_old_are_left_alone(void) {
    plant();
    memscope_object_samples_sweep(samples, true, by_address);
    EXPECT(samples->count == 20 && samples->old == 10 && !has(1) && has(1001) && has(2001));
    memscope_object_samples_sweep(samples, true, all_dead);
    EXPECT(samples->count == 10 && samples->old == 10 && has(2001) && has(2010));
    memscope_object_samples_sweep(samples, false, all_dead);
    EXPECT(samples->count == 0 && samples->old == 0);
}

static void test_an_old_object_that_is_young_again_is_looked_at(void) {
    plant();
    memscope_object_samples_sweep(samples, true, by_address);
    memscope_object_samples_sweep(samples, false, all_young);
    EXPECT(samples->count == 20 && samples->old == 0);
    memscope_object_samples_sweep(samples, true, all_dead);
    EXPECT(samples->count == 0);
}

static void test_an_unsettled_sample_is_not_old(void) {
    begin();
    memscope_object_samples_add(samples, (struct memscope_object_sample){.address = 2001, .pending = 1});
    memscope_object_samples_sweep(samples, false, by_address);
    EXPECT(samples->count == 1 && samples->old == 0);
}

static void test_after_an_unseen_gc_only_what_it_cannot_have_freed_is_kept(void) {
    plant();
    memscope_object_samples_sweep(samples, true, by_address);
    memscope_object_samples_forget(samples, true);
    EXPECT(samples->count == 10 && has(2005) && samples->dropped == 10);
    memscope_object_samples_forget(samples, false);
    EXPECT(samples->count == 0 && samples->dropped == 20);
}

static enum memscope_object_age odd_are_dead(uintptr_t address) {
    return address % 2 ? MEMSCOPE_OBJECT_DEAD : MEMSCOPE_OBJECT_OLD;
}

static void test_old_objects_keep_their_order(void) {
    plant();
    memscope_object_samples_sweep(samples, true, by_address);
    for (uint32_t index = 0; index < 10; index++)
        EXPECT(samples->list[index].address == 2001 + index);
    memscope_object_samples_sweep(samples, false, odd_are_dead);
    EXPECT(samples->old == 10 && samples->count == 10);
    for (uint32_t index = 0; index < 5; index++)
        EXPECT(samples->list[index].address == 2002 + 2 * index);
}

static void add_user(uintptr_t address, uint32_t stack) {
    memscope_call_retain(&samples->calls, stack);
    memscope_object_samples_add(samples, (struct memscope_object_sample){.address = address, .stack = stack});
}

/* So many samples that a single call does not release the last, nor its stack. New samples do not take its place. */
static void test_dropped_samples_are_released_little_by_little(void) {
    uint32_t used;

    begin();
    used = stack("main", "save");
    for (uint32_t number = 0; number <= MEMSCOPE_RELEASED_AT_ONCE; number++)
        add_user(1 + number % 999, used);
    memscope_call_release(&samples->calls, &samples->texts, used);
    memscope_object_samples_sweep(samples, true, by_address);
    EXPECT(samples->count == 0 && samples->unreleased == MEMSCOPE_RELEASED_AT_ONCE + 1);
    add(1001);
    memscope_object_samples_release(samples);
    EXPECT(samples->unreleased == 1 && samples->calls.count == 1 + 2 && has(1001));
    memscope_object_samples_make_room(samples, 1, &plan);
    EXPECT(samples->unreleased == 0 && samples->calls.count == 1 && samples->texts.count == 1 && samples->count == 1);
}

static void test_a_full_table_releases_dropped_samples_for_new_ones(void) {
    uint32_t used;

    begin();
    used = stack("main", "save");
    for (uint32_t number = 0; number < MEMSCOPE_OBJECT_SAMPLES; number++)
        add_user(1, used);
    memscope_object_samples_forget(samples, false);
    for (uint32_t number = 0; number < MEMSCOPE_OBJECT_SAMPLES; number++)
        add(2001 + number);
    EXPECT(samples->count == MEMSCOPE_OBJECT_SAMPLES && samples->unreleased == 0);
    EXPECT(samples->dropped == MEMSCOPE_OBJECT_SAMPLES && samples->calls.nodes[used].users == 1);
    for (uint32_t index = 0; index < samples->count; index++)
        EXPECT(samples->list[index].address == 2001 + index);
}

/* The stacks take more than half of the room. */
static void test_all_are_released_if_they_may_take_the_room_of_others(void) {
    uint32_t frame;

    begin();
    frame = text("deep");
    for (uint32_t number = 0; number < MEMSCOPE_OBJECT_SAMPLES; number++) {
        uint32_t outer = memscope_call_add(&samples->calls, &samples->texts, 0, frame, number);
        uint32_t node = memscope_call_add(&samples->calls, &samples->texts, outer, frame, number);

        memscope_object_samples_add(samples, (struct memscope_object_sample){.address = 1, .stack = node});
    }
    memscope_object_samples_sweep(samples, false, all_dead);
    memscope_object_samples_release(samples);
    EXPECT(samples->calls.count <= MEMSCOPE_CALL_NODES / 2);
    while (samples->unreleased > 0)
        memscope_object_samples_release(samples);
    EXPECT(samples->calls.count == 1);
}

static uintptr_t further(uintptr_t address) {
    return address + 5000;
}

static void test_objects_move(void) {
    plant();
    memscope_object_samples_move(samples, further);
    EXPECT(samples->count == 30 && has(5001) && has(7010) && !has(1));
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

static void test_the_samples_of_a_window_are_dropped(void) {
    begin();
    for (uint32_t number = 0; number < 30; number++)
        memscope_object_samples_add(samples, (struct memscope_object_sample){
                                                 .address = (number % 2 ? 1000 : 2000) + number, .window = number % 3});
    memscope_object_samples_sweep(samples, true, by_address);
    EXPECT(samples->count == 30 && samples->old == 15);
    memscope_object_samples_forget_window(samples, 2);
    EXPECT(samples->count == 20 && samples->old == 10);
    for (uint32_t index = 0; index < samples->count; index++)
        EXPECT(samples->list[index].window < 2 && (samples->list[index].address >= 2000) == (index < samples->old));
}

#define ROOM 1000

static void test_a_table_with_little_room_is_thinned_without_bias(void) {
    const double added = 200000;

    begin();
    for (uint32_t number = 0; number < (uint32_t)added; number++) {
        if (number % ROOM == 0)
            memscope_object_samples_make_room(samples, ROOM, &plan);
        memscope_object_samples_add(
            samples, (struct memscope_object_sample){.address = 3000 + number, .weight = (float)plan.interval});
        if (number % 20000 == 0)
            memscope_object_samples_sweep(samples, true, by_address); /* so that some are old */
    }
    EXPECT(samples->thinned >= 2 && samples->count < MEMSCOPE_OBJECT_SAMPLES);
    EXPECT(plan.interval == MEMSCOPE_FIRST_INTERVAL * (double)(1u << samples->thinned));
    EXPECT(samples->taken == (uint64_t)added && samples->dropped == 0);
    for (uint32_t index = 0; index < samples->count; index++)
        EXPECT(samples->list[index].weight == (float)plan.interval);
}

static void test_room_is_made_only_between_windows(void) {
    begin();
    for (uint32_t number = 0; number <= MEMSCOPE_OBJECT_SAMPLES; number++) {
        if (number == MEMSCOPE_OBJECT_SAMPLES - ROOM)
            memscope_object_samples_make_room(samples, ROOM, &plan);
        add(3000 + number);
    }
    EXPECT(samples->count == MEMSCOPE_OBJECT_SAMPLES && samples->thinned == 0 && samples->list[0].weight == 50);
    EXPECT(samples->taken == MEMSCOPE_OBJECT_SAMPLES + 1 && samples->dropped == 1);
    memscope_object_samples_make_room(samples, ROOM, &plan);
    EXPECT(samples->thinned == 1 && plan.interval == 2 * MEMSCOPE_FIRST_INTERVAL);
    EXPECT(samples->count > MEMSCOPE_OBJECT_SAMPLES / 2 - 700 && samples->count < MEMSCOPE_OBJECT_SAMPLES / 2 + 700);
    EXPECT(samples->list[0].weight == 100 && samples->dropped == 1);
}

static uintptr_t first_to_stay;

static enum memscope_object_age by_first(uintptr_t address) {
    return address < first_to_stay ? MEMSCOPE_OBJECT_DEAD : MEMSCOPE_OBJECT_OLD;
}

/* Watches allocations, whose numbers are their addresses, in windows; returns the number of the next one. */
static uint64_t watch(uint64_t from, uint64_t count) {
    for (uint64_t begins_at = from; begins_at < from + count; begins_at += MEMSCOPE_WINDOW_ALLOCATIONS) {
        memscope_object_samples_make_room(samples, ROOM, &plan);
        for (uint64_t at = begins_at + memscope_plan_interval(&plan) - 1; at < begins_at + MEMSCOPE_WINDOW_ALLOCATIONS;
             at += memscope_plan_interval(&plan))
            memscope_object_samples_add(samples,
                                        (struct memscope_object_sample){.address = at, .weight = (float)plan.interval});
    }
    return from + count;
}

static double estimate(uintptr_t from, uintptr_t below) {
    double sum = 0;

    for (uint32_t index = 0; index < samples->count; index++)
        if (samples->list[index].address >= from && samples->list[index].address < below)
            sum += samples->list[index].weight;
    return sum;
}

/*
 * Many live objects, of which a fifth stay; then fewer, until all have died; then few. Estimates must be within five
 * standard errors.
 */
static void test_the_interval_shrinks_again_without_bias(void) {
    uint64_t many, all;

    begin();
    many = watch(1, 10000000);
    EXPECT(plan.interval == 4 * MEMSCOPE_FIRST_INTERVAL && fabs(estimate(1, many) - 1e7) < 5 * sqrt(1e7 * 200));
    first_to_stay = many - 2000000;
    memscope_object_samples_sweep(samples, false, by_first);
    all = watch(many, 1000000);
    EXPECT(plan.interval == 2 * MEMSCOPE_FIRST_INTERVAL || plan.interval == MEMSCOPE_FIRST_INTERVAL);
    EXPECT(fabs(estimate(1, many) - 2e6) < 5 * sqrt(2e6 * 200));
    EXPECT(fabs(estimate(many, all) - 1e6) < 5 * sqrt(1e6 * 100));
    first_to_stay = all;
    memscope_object_samples_sweep(samples, false, by_first);
    all = watch(all, 200000);
    EXPECT(plan.interval == MEMSCOPE_FIRST_INTERVAL && fabs(estimate(1, all) - 2e5) < 5 * sqrt(2e5 * 50));
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

static void end_window(uint64_t ends_at, uint64_t spent_ns, uint64_t cpu_ns) {
    memscope_plan_begin_window(&plan, ends_at - MEMSCOPE_WINDOW_ALLOCATIONS, 0, 0);
    memscope_plan_end_window(
        &plan, (struct memscope_window){
                   .ends_at = ends_at, .watched = MEMSCOPE_WINDOW_ALLOCATIONS, .spent_ns = spent_ns, .cpu_ns = cpu_ns});
}

/* Windows that cost `spent_ns`, one after the other: the share of all CPU time that they took in the end. */
static double share_spent(uint64_t spent_ns, uint64_t absurd_ns) {
    uint64_t at = 0, cpu_ns, spent = 0, all = 0;

    begin();
    for (int window = 0; window < 2000; window++) {
        uint64_t begins = plan.due > at ? plan.due : at;

        while (!memscope_plan_affords(&plan, (begins - at) * 100, 0))
            begins += 1000;
        cpu_ns = (begins + MEMSCOPE_WINDOW_ALLOCATIONS - at) * 100;
        at = begins + MEMSCOPE_WINDOW_ALLOCATIONS;
        end_window(at, window % 100 == 50 ? spent_ns + absurd_ns : spent_ns, cpu_ns);
        spent += spent_ns + MEMSCOPE_WINDOW_ALLOCATIONS * 15;
        all += cpu_ns;
    }
    return (double)spent / (double)all;
}

static void test_the_budget_is_kept_and_used(void) {
    double share = share_spent(600000, 0);

    EXPECT(share > 0.008 && share < 0.012);
    EXPECT(share_spent(0, 0) > 0.008);
    EXPECT(share_spent(5000000, 0) < 0.012);
}

static void test_an_absurd_time_does_not_stop_sampling(void) {
    double share = share_spent(600000, UINT64_C(3600000000000));

    EXPECT(share > 0.004);
}

static void test_everything_is_watched_if_it_costs_nearly_nothing(void) {
    begin();
    for (uint64_t window = 1; window < 50; window++) {
        end_window(window * MEMSCOPE_WINDOW_ALLOCATIONS, 100000, 1000000000);
        EXPECT(plan.due == window * MEMSCOPE_WINDOW_ALLOCATIONS);
    }
    EXPECT(plan.stood_for == 49.0 * MEMSCOPE_WINDOW_ALLOCATIONS);
}

/* The job that ends a window runs late, so the next part may begin at an allocation before the end of the window. */
static void test_an_open_window_stands_for_what_has_been_watched_of_it(void) {
    struct memscope_sampling_plan then;
    double last;

    begin();
    end_window(MEMSCOPE_WINDOW_ALLOCATIONS + 300, 100000, 1000000000);
    memscope_plan_begin_window(&plan, MEMSCOPE_WINDOW_ALLOCATIONS + 300, 0, 0);
    then = memscope_plan_at(&plan, MEMSCOPE_WINDOW_ALLOCATIONS * 3 / 2 + 300, MEMSCOPE_WINDOW_ALLOCATIONS / 2, &last);
    EXPECT(last == 1 && then.unwatched == 0.5);
    EXPECT(then.stood_for == plan.stood_for - plan.last_length / 2);
    EXPECT(memscope_plan_share(&then) > 0.98);
    then = memscope_plan_at(&plan, MEMSCOPE_WINDOW_ALLOCATIONS + 300, 2 * MEMSCOPE_WINDOW_ALLOCATIONS, &last);
    EXPECT(then.unwatched == 1 && then.stood_for == plan.stood_for - plan.last_length);
}

static void test_intervals_are_geometric(void) {
    double sum = 0, squares = 0;

    begin();
    for (int count = 0; count < 100000; count++) {
        double interval = (double)memscope_plan_interval(&plan);

        EXPECT(interval >= 1);
        sum += interval;
        squares += interval * interval;
    }
    sum /= 100000;
    EXPECT(sum > 49 && sum < 51);
    EXPECT(squares / 100000 - sum * sum > 2300 && squares / 100000 - sum * sum < 2600); /* 50 × 49 */
}

int main(void) {
    samples = memscope_object_samples_map();
    if (samples == NULL)
        SKIP("no memory");
    test_a_text_is_kept_once_and_goes_with_its_last_user();
    test_texts_that_find_no_room();
    test_stacks_share_their_callers();
    test_lines_of_long_files();
    test_stacks_that_find_no_room();
    test_the_dead_go_and_the_old_are_left_alone();
    test_an_old_object_that_is_young_again_is_looked_at();
    test_an_unsettled_sample_is_not_old();
    test_after_an_unseen_gc_only_what_it_cannot_have_freed_is_kept();
    test_old_objects_keep_their_order();
    test_dropped_samples_are_released_little_by_little();
    test_a_full_table_releases_dropped_samples_for_new_ones();
    test_all_are_released_if_they_may_take_the_room_of_others();
    test_objects_move();
    test_the_samples_of_a_window_are_dropped();
    test_a_table_with_little_room_is_thinned_without_bias();
    test_room_is_made_only_between_windows();
    test_the_interval_shrinks_again_without_bias();
    test_the_budget_is_kept_and_used();
    test_an_absurd_time_does_not_stop_sampling();
    test_everything_is_watched_if_it_costs_nearly_nothing();
    test_an_open_window_stands_for_what_has_been_watched_of_it();
    test_intervals_are_geometric();
    return 0;
}
