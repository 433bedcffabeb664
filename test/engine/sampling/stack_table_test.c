/* The table of stacks: which of them a shortening leaves whole, what it leaves of the others, and that sums stay. */
#include "sampling/stack_table.h"

#include "../expect.h"

#include <string.h>

static struct memscope_stack_table table;

static uint64_t ruby(uint32_t frame) {
    return memscope_word(MEMSCOPE_WORD_RUBY, frame, 1);
}

static uint64_t state(enum memscope_stack_state state) {
    return memscope_word(MEMSCOPE_WORD_STATE, state, 0);
}

static uint64_t tag(uint32_t number) {
    return memscope_word(MEMSCOPE_WORD_TAG, number, 0);
}

static void begin(void) {
    memset(table.slots, 0, sizeof table.slots);
    table.count = table.word_count = table.idle = table.idle_before = 0;
}

static uint32_t add(const uint64_t *words, uint32_t length, double bytes) {
    uint32_t number = memscope_stack_number(&table, words, length);

    EXPECT(number != 0);
    table.stacks[number - 1].allocated_bytes += bytes;
    table.stacks[number - 1].allocated_objects += 1;
    return number;
}

/* Two native frames, then `depth` Ruby frames: the innermost is `line`, and only the outermost is `path`. */
static uint32_t add_deep(uint32_t line, uint32_t path, uint32_t depth, double bytes) {
    uint64_t words[MEMSCOPE_STACK_WORDS] = {0x1000, 0x2000};

    for (uint32_t index = 0; index < depth; index++)
        words[2 + index] = ruby(index == 0 ? line : 100 + index);
    words[1 + depth] = ruby(path);
    words[2 + depth] = tag(7);
    return add(words, 3 + depth, bytes);
}

static bool is(uint32_t number, const uint64_t *words, uint32_t length) {
    const struct memscope_kept_stack *stack = &table.stacks[number - 1];

    return stack->length == length && memcmp(table.words + stack->first_word, words, length * sizeof *words) == 0;
}

static bool has(const uint64_t *words, uint32_t length) {
    for (uint32_t number = 1; number <= table.count; number++)
        if (is(number, words, length))
            return true;
    return false;
}

static double allocated_bytes(void) {
    double sum = 0;

    for (uint32_t index = 0; index < table.count; index++)
        sum += table.stacks[index].allocated_bytes;
    return sum;
}

static uint32_t marked(void) {
    uint32_t stacks = 0;

    for (uint32_t index = 0; index < table.count; index++)
        for (uint32_t word = 0; word < table.stacks[index].length; word++)
            stacks += table.words[table.stacks[index].first_word + word] == state(MEMSCOPE_STACK_CALLERS_DROPPED);
    return stacks;
}

static void test_ever_new_stacks(void) {
    uint32_t shortenings = 0, most = 0, most_words = 0;

    begin();
    for (uint32_t path = 0; path < 200000; path++) {
        if (memscope_stack_table_should_trim(&table)) {
            memscope_stacks_shorten(&table);
            shortenings++;
            EXPECT(table.count == table.idle && table.count <= 3072 && marked() > 0);
        }
        add_deep(path % 300, 1000 + path, 40, path % 200 == 0 ? 1 << 20 : 512);
        most = table.count > most ? table.count : most;
        most_words = table.word_count > most_words ? table.word_count : most_words;
    }
    EXPECT(shortenings > 30 && shortenings < 200);
    EXPECT(most < 7000 && most_words < 7000 * 43);
    EXPECT(allocated_bytes() == 1000 * (double)(1 << 20) + 199000 * 512.0);
}

static void test_what_is_left_of_a_stack(void) {
    const uint64_t inner[] = {0x1000,
                              0x2000,
                              ruby(5),
                              ruby(101),
                              ruby(102),
                              ruby(103),
                              ruby(104),
                              ruby(105),
                              ruby(106),
                              ruby(107),
                              ruby(108),
                              ruby(109),
                              ruby(110),
                              ruby(111),
                              ruby(112),
                              ruby(113),
                              ruby(114),
                              ruby(115),
                              state(MEMSCOPE_STACK_CALLERS_DROPPED),
                              tag(7)};
    const uint64_t without_gvl[] = {0x3000, ruby(9), state(MEMSCOPE_STACK_NO_GVL), tag(8)};
    uint64_t native[40];

    begin();
    add(without_gvl, 4, 1);
    for (uint32_t index = 0; index < 40; index++)
        native[index] = index < 38 ? 0x5000 + index : index == 38 ? state(MEMSCOPE_STACK_NO_GVL) : tag(9);
    add(native, 40, 1);
    for (uint32_t path = 0; path < 4000; path++)
        add_deep(5, 1000 + path, 40, 512);
    memscope_stacks_shorten(&table);
    EXPECT(table.count == 3 && has(inner, sizeof inner / sizeof inner[0]) && has(without_gvl, 4));
    native[4] = state(MEMSCOPE_STACK_NO_GVL);
    native[5] = tag(9);
    EXPECT(has(native, 6)); /* no Ruby frame is dropped, so there is no mark */
    memscope_stacks_shorten(&table);
    EXPECT(table.count == 3 && marked() == 1);
}

/* Frames that found no room count as frames. */
static void test_frames_without_room(void) {
    uint64_t words[64];

    begin();
    for (uint32_t index = 0; index < 60; index++)
        words[index] = state(MEMSCOPE_STACK_NO_ROOM);
    words[60] = tag(1);
    add(words, 61, 1);
    add(words, 0, 1);
    for (uint32_t path = 0; path < 4000; path++)
        add_deep(path, 1000 + path, 40, 512);
    memscope_stacks_shorten(&table); /* 4002 stacks, of 4 frames */
    EXPECT(table.count == 4002 && table.idle == 4002 && !memscope_stack_table_should_trim(&table));
    words[4] = state(MEMSCOPE_STACK_CALLERS_DROPPED);
    words[5] = tag(1);
    EXPECT(has(words, 6) && has(words, 0));
}

static void add_labelled(uint32_t line, uint32_t tagged, uint32_t thread, uint32_t generation) {
    uint64_t words[24];

    for (uint32_t index = 0; index < 20; index++)
        words[index] = ruby(index == 0 ? line : index == 19 ? 1000 + generation : 100 + index);
    words[20] = tag(tagged);
    words[21] = memscope_word(MEMSCOPE_WORD_THREAD, thread, 0);
    words[22] = memscope_word(MEMSCOPE_WORD_GENERATION, generation, 3);
    add(words, 23, 512);
}

/* 2000 lines and tags, in as many threads and generations as are given. */
static void shorten_labelled(uint32_t threads, uint32_t generations) {
    begin();
    for (uint32_t number = 0; number < 2000 * threads * generations; number++)
        add_labelled(number % 20, 100 + number / 20 % 100, number / 2000 % threads, number / 2000 / threads);
    memscope_stacks_shorten(&table);
}

/* Generations go first, then threads; lines and tags stay. */
static void test_labels(void) {
    uint64_t left[20] = {ruby(5)};

    for (uint32_t index = 1; index < 16; index++)
        left[index] = ruby(100 + index);
    left[16] = state(MEMSCOPE_STACK_CALLERS_DROPPED);
    left[17] = tag(150);
    left[18] = memscope_word(MEMSCOPE_WORD_THREAD, 0, 0);
    left[19] = memscope_word(MEMSCOPE_WORD_GENERATION, 0, 3);
    shorten_labelled(1, 16);
    EXPECT(table.count == 2000 && has(left, 20));
    shorten_labelled(4, 8);
    left[18] = left[19];
    EXPECT(table.count == 2000 && has(left, 19));
    memscope_stacks_shorten(&table);
    EXPECT(table.count == 2000 && has(left, 19));
}

/* What is short already has one mark, however often it is shortened. */
static void test_shortened_again(void) {
    begin();
    for (uint32_t path = 0; path < 1500; path++)
        add_deep(path, 10000 + path, 40, 512);
    memscope_stacks_shorten(&table);
    EXPECT(table.count == 1500 && table.stacks[0].length == 20 && marked() == 1500);
    for (uint32_t path = 0; path < 6000; path++)
        add_deep(path, 20000 + path, 40, 512);
    memscope_stacks_shorten(&table);
    EXPECT(table.count == 6000 && table.stacks[0].length == 6 && marked() == 6000);
    EXPECT(allocated_bytes() == 7500 * 512.0);
}

/* More lines and tags than are kept: tags stay. */
static void test_tags_only(void) {
    const uint64_t left[] = {state(MEMSCOPE_STACK_CALLERS_DROPPED), tag(3)};
    uint64_t words[] = {0, ruby(1), ruby(2), tag(3)};

    begin();
    for (uint32_t line = 0; line < 20000; line++) {
        words[0] = ruby(1000 + line);
        add(words, 4, 512);
    }
    memscope_stacks_shorten(&table);
    EXPECT(table.count == 1 && is(1, left, 2) && allocated_bytes() == 20000 * 512.0);
}

static void test_what_is_left_whole(void) {
    uint32_t held[100], large;

    begin();
    for (uint32_t index = 0; index < 100; index++) {
        for (uint32_t path = 0; path < 50; path++)
            add_deep(path % 7, 100000 + index * 50 + path, 40, 512);
        held[index] = add_deep(5, 1000 + index, 40, 512);
        memscope_stack_add_sample(&table, held[index]);
        memscope_stack_add_sample(&table, held[index]);
        memscope_stack_remove_sample(&table, held[index]);
    }
    large = add_deep(5, 2000, 40, 1 << 20);
    EXPECT(large == table.count && table.idle == large - 100 && memscope_stack_table_should_trim(&table));
    memscope_stacks_shorten(&table);
    EXPECT(table.count == 100 + 7 + 1 && table.idle == 7 + 1);
    for (uint32_t index = 0; index < 100; index++) {
        uint32_t number = table.renumbered[held[index] - 1];

        EXPECT(number == add_deep(5, 1000 + index, 40, 0) && table.stacks[number - 1].samples == 1);
        memscope_stack_remove_sample(&table, number);
    }
    EXPECT(table.idle == table.count && table.count == 108);
    EXPECT(table.stacks[add_deep(5, 2000, 40, 0) - 1].allocated_bytes == 1 << 20);
    EXPECT(allocated_bytes() == 5100 * 512.0 + (1 << 20));
}

/* However much the merged stacks add up to, what is left whole is chosen among the others. */
static void test_merged_stacks_displace_none(void) {
    begin();
    for (uint32_t path = 0; path < 3000; path++)
        add_deep(path, 10000 + path, 40, 1 << 22);
    memscope_stacks_shorten(&table);
    EXPECT(table.count == 3000 && marked() == 3000);
    for (uint32_t path = 0; path < 3000; path++)
        add_deep(path, 20000 + path, 40, 1 << 20);
    for (uint32_t path = 0; path < 500; path++)
        add_deep(path, 30000 + path, 40, 1 << 21);
    memscope_stacks_shorten(&table);
    EXPECT(table.count == 3500 && marked() == 3000);
}

/* A live stack may be what is left of an idle one. */
static void test_an_idle_stack_becomes_a_live_one(void) {
    uint64_t words[] = {ruby(1), memscope_word(MEMSCOPE_WORD_GENERATION, 4, 3)};
    uint32_t live;

    begin();
    add(words, 2, 512);
    words[1] = memscope_word(MEMSCOPE_WORD_GENERATION, 0, 3);
    memscope_stack_add_sample(&table, live = add(words, 2, 1024));
    words[1] = memscope_word(MEMSCOPE_WORD_GENERATION, 5, 3);
    add(words, 2, 2048);
    memscope_stacks_shorten(&table);
    EXPECT(table.count == 1 && table.idle == 0 && table.renumbered[live - 1] == 1);
    EXPECT(table.stacks[0].samples == 1 && table.stacks[0].allocated_bytes == 512 + 1024 + 2048);
}

static void test_a_table_full_of_stacks(void) {
    uint64_t words[2];

    begin();
    for (uint32_t path = 0; path < MEMSCOPE_STACK_LIMIT; path++) {
        words[0] = ruby(path);
        words[1] = ruby(path + 1);
        memscope_stack_add_sample(&table, add(words, 2, 1));
    }
    words[0] = words[1] = 0x1000;
    EXPECT(memscope_stack_number(&table, words, 2) == 0 && !memscope_stack_table_should_trim(&table));
    for (uint32_t number = 1; number <= 5000; number++)
        memscope_stack_remove_sample(&table, number);
    EXPECT(memscope_stack_table_should_trim(&table));
    memscope_stacks_shorten(&table);
    EXPECT(table.idle <= 2500 && table.count == MEMSCOPE_STACK_LIMIT - 5000 + table.idle);
    EXPECT(memscope_stack_number(&table, words, 2) == table.count);
    EXPECT(!memscope_stack_table_should_trim(&table));
}

static void test_room_for_words(void) {
    uint64_t words[MEMSCOPE_STACK_WORDS] = {0};
    uint32_t stacks = MEMSCOPE_STACKS_WORD_LIMIT / MEMSCOPE_STACK_WORDS;

    begin();
    for (uint32_t path = 0; path < stacks; path++) {
        words[MEMSCOPE_STACK_WORDS - 1] = path;
        add(words, MEMSCOPE_STACK_WORDS, 1);
    }
    words[0] = 1;
    EXPECT(memscope_stack_number(&table, words, MEMSCOPE_STACK_WORDS) == 0 && memscope_stack_number(&table, words, 0));
    EXPECT(memscope_stack_table_should_trim(&table));
    memscope_stacks_shorten(&table);
    EXPECT(table.count == 2 && memscope_stack_number(&table, words, MEMSCOPE_STACK_WORDS) == 3);
}

int main(void) {
    test_ever_new_stacks();
    test_what_is_left_of_a_stack();
    test_frames_without_room();
    test_labels();
    test_shortened_again();
    test_tags_only();
    test_what_is_left_whole();
    test_merged_stacks_displace_none();
    test_an_idle_stack_becomes_a_live_one();
    test_a_table_full_of_stacks();
    test_room_for_words();
    return 0;
}
