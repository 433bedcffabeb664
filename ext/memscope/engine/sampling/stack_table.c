#include "sampling/stack_table.h"

#include <string.h>

/* ---- adding ----------------------------------------------------------------------------------------------------- */

static uint64_t hash_of(const uint64_t *words, uint32_t length) {
    uint64_t hash = UINT64_C(1469598103934665603);

    for (uint32_t index = 0; index < length; index++) {
        hash = (hash ^ words[index]) * UINT64_C(1099511628211);
        hash ^= hash >> 29;
    }
    return hash;
}

static bool is_stack(const struct memscope_stack_table *table, const struct memscope_kept_stack *stack, uint64_t hash,
                     const uint64_t *words, uint32_t length) {
    return stack->hash == hash && stack->length == length &&
           memcmp(table->words + stack->first_word, words, length * sizeof *words) == 0;
}

static bool has_room(const struct memscope_stack_table *table, uint32_t length) {
    return table->count < MEMSCOPE_STACK_LIMIT && length <= MEMSCOPE_STACKS_WORD_LIMIT - table->word_count;
}

/* `words` may be in table->words, from word_count on. */
static uint32_t number_of(struct memscope_stack_table *table, const uint64_t *words, uint32_t length, uint64_t hash) {
    uint32_t slot = hash & (MEMSCOPE_STACK_SLOTS - 1), number;

    while ((number = table->slots[slot]) != 0) {
        if (is_stack(table, &table->stacks[number - 1], hash, words, length))
            return number;
        slot = (slot + 1) & (MEMSCOPE_STACK_SLOTS - 1);
    }
    if (!has_room(table, length))
        return 0;
    memmove(table->words + table->word_count, words, length * sizeof *words);
    table->stacks[table->count++] =
        (struct memscope_kept_stack){.hash = hash, .first_word = table->word_count, .length = (uint16_t)length};
    table->word_count += length;
    table->idle++;
    return table->slots[slot] = table->count;
}

uint32_t memscope_stack_number(struct memscope_stack_table *table, const uint64_t *words, uint32_t length) {
    return number_of(table, words, length, hash_of(words, length));
}

static void gain_samples(struct memscope_stack_table *table, struct memscope_kept_stack *stack, uint32_t samples) {
    if (stack->samples == 0)
        table->idle--;
    stack->samples += samples;
}

void memscope_stack_add_sample(struct memscope_stack_table *table, uint32_t number) {
    gain_samples(table, &table->stacks[number - 1], 1);
}

void memscope_stack_remove_sample(struct memscope_stack_table *table, uint32_t number) {
    if (--table->stacks[number - 1].samples == 0)
        table->idle++;
}

/* ---- idle stacks that keep their frames -------------------------------------------------------------------------- */

#define IDLE_IN_FULL 1024 /* stacks, at most */

static int exponent_of(double bytes) {
    return 63 - __builtin_clzll((uint64_t)bytes | 1);
}

/* An exponent: idle stacks that allocated at least that power of two of bytes keep their frames. */
static int min_exponent_in_full(const struct memscope_stack_table *table) {
    uint32_t stacks[64] = {0}, more = 0;
    int exponent = 63;

    for (uint32_t index = 0; index < table->count; index++)
        if (table->stacks[index].samples == 0 && !table->stacks[index].shortened)
            stacks[exponent_of(table->stacks[index].allocated_bytes)]++;
    for (; exponent >= 0 && more + stacks[exponent] <= IDLE_IN_FULL; exponent--)
        more += stacks[exponent];
    return exponent + 1;
}

static bool keeps_frames(const struct memscope_kept_stack *stack, int in_full) {
    return !stack->shortened && exponent_of(stack->allocated_bytes) >= in_full;
}

/* ---- idle stacks that are shortened ------------------------------------------------------------------------------ */

/*
 * Idle stacks are shortened by the first level that leaves at most `max_stacks` of them. No level keeps generations,
 * which give the age of live memory, of which an idle stack has none. Levels drop threads before callers, because many
 * threads of a server do the same work.
 */
static const struct level {
    uint32_t frames; /* Ruby frames */
    uint32_t native_frames;
    bool threads;
    uint32_t max_stacks;
} levels[] = {
    {16, 4, true, 2048}, {16, 4, false, 2048}, {8, 4, false, 2048},       {4, 4, false, 4096},
    {2, 2, false, 8192}, {1, 1, false, 16384}, {0, 0, false, UINT32_MAX},
};
static const struct level complete = {MEMSCOPE_STACK_WORDS, MEMSCOPE_STACK_WORDS, true, UINT32_MAX};

#define CALLERS_DROPPED memscope_word(MEMSCOPE_WORD_STATE, MEMSCOPE_STACK_CALLERS_DROPPED, 0)
#define NO_ROOM memscope_word(MEMSCOPE_WORD_STATE, MEMSCOPE_STACK_NO_ROOM, 0)

/* A placeholder for a Ruby frame that found no room is a frame too. */
static bool is_ruby_frame(uint64_t word) {
    return memscope_word_kind(word) == MEMSCOPE_WORD_RUBY || word == NO_ROOM;
}

/* Copies frames into table->rest: native ones, then Ruby's. Returns the number of words of the stack that were read. */
static uint32_t copy_frames(struct memscope_stack_table *table, const struct memscope_kept_stack *stack,
                            const struct level *level, uint32_t *length) {
    const uint64_t *words = table->words + stack->first_word;
    uint32_t read = 0, native;

    for (; read < stack->length && memscope_word_kind(words[read]) == MEMSCOPE_WORD_NATIVE; read++)
        if (read < level->native_frames)
            table->rest[(*length)++] = words[read];
    for (native = read; read < stack->length && is_ruby_frame(words[read]); read++)
        if (read - native < level->frames)
            table->rest[(*length)++] = words[read];
    if (read - native > level->frames && (read == stack->length || words[read] != CALLERS_DROPPED))
        table->rest[(*length)++] = CALLERS_DROPPED;
    return read;
}

/* Writes an idle stack as the level shortens it to table->rest, and returns its length. */
static uint32_t shorten(struct memscope_stack_table *table, const struct memscope_kept_stack *stack,
                        const struct level *level) {
    const uint64_t *words = table->words + stack->first_word;
    uint32_t length = 0;

    for (uint32_t index = copy_frames(table, stack, level, &length); index < stack->length; index++) {
        enum memscope_word_kind kind = memscope_word_kind(words[index]);

        if (kind == MEMSCOPE_WORD_GENERATION)
            table->rest[length++] = memscope_word(kind, 0, memscope_word_line(words[index]));
        else if (kind != MEMSCOPE_WORD_THREAD || level->threads)
            table->rest[length++] = words[index];
    }
    return length;
}

/* Uses the slots as a set. They are filled again afterwards. */
static bool is_new(uint32_t *slots, uint64_t hash) {
    uint32_t slot = hash & (MEMSCOPE_STACK_SLOTS - 1), key = (uint32_t)(hash >> 32) | 1;

    while (slots[slot] != 0 && slots[slot] != key)
        slot = (slot + 1) & (MEMSCOPE_STACK_SLOTS - 1);
    if (slots[slot] == key)
        return false;
    slots[slot] = key;
    return true;
}

/* The number of idle stacks that would remain of those that lose frames. */
static uint32_t remaining(struct memscope_stack_table *table, const struct level *level, int in_full) {
    uint32_t different = 0;

    memset(table->slots, 0, sizeof table->slots);
    for (uint32_t index = 0; index < table->count; index++) {
        const struct memscope_kept_stack *stack = &table->stacks[index];

        if (stack->samples == 0 && !keeps_frames(stack, in_full))
            different += is_new(table->slots, hash_of(table->rest, shorten(table, stack, level)));
    }
    return different;
}

/* If the table is full, the level must also make room in it. */
static const struct level *level_of(struct memscope_stack_table *table, int in_full) {
    uint32_t max = has_room(table, MEMSCOPE_STACK_WORDS) ? UINT32_MAX : table->idle / 2, left;
    const struct level *level = levels;

    for (; level->max_stacks != UINT32_MAX; level++) {
        left = remaining(table, level, in_full);
        if (left <= level->max_stacks && left <= max)
            break;
    }
    return level;
}

/* ---- the merge pass ---------------------------------------------------------------------------------------------- */

#define MIN_TRIMMED_STACKS 2048

/* The more stacks there are, the longer a merge pass takes, and the less often it runs. */
bool memscope_stack_table_should_trim(const struct memscope_stack_table *table) {
    uint32_t more = table->idle > table->idle_before ? table->idle - table->idle_before : 0;

    return more >= MIN_TRIMMED_STACKS + (has_room(table, MEMSCOPE_STACK_WORDS) ? table->count / 4 : 0);
}

/* put_live and put_idle return the stack's new number. */
static uint32_t put_live(struct memscope_stack_table *table, const struct memscope_kept_stack *stack) {
    uint32_t number = number_of(table, table->words + stack->first_word, stack->length, stack->hash);

    gain_samples(table, &table->stacks[number - 1], stack->samples);
    return number;
}

/* Returns true if table->rest lacks more of the stack than the generation, which is the last word. */
static bool is_changed(const struct memscope_stack_table *table, const struct memscope_kept_stack *stack,
                       uint32_t length) {
    const uint64_t *words = table->words + stack->first_word;

    return length != stack->length || (length > 0 && memcmp(table->rest, words, (length - 1) * sizeof *words) != 0);
}

static uint32_t put_idle(struct memscope_stack_table *table, const struct memscope_kept_stack *stack,
                         const struct level *level) {
    uint32_t length = shorten(table, stack, level);
    bool changed = stack->shortened || is_changed(table, stack, length);
    uint32_t number = memscope_stack_number(table, table->rest, length);

    table->stacks[number - 1].shortened |= changed;
    return number;
}

/* Overwrites words already read: the order of the stacks stays the same, and no stack gets longer. */
static void rebuild(struct memscope_stack_table *table, const struct level *level, int in_full) {
    uint32_t count = table->count;

    memset(table->slots, 0, sizeof table->slots);
    table->count = table->word_count = table->idle = 0;
    for (uint32_t index = 0; index < count; index++) {
        struct memscope_kept_stack stack = table->stacks[index], *kept;
        uint32_t number = stack.samples > 0
                              ? put_live(table, &stack)
                              : put_idle(table, &stack, keeps_frames(&stack, in_full) ? &complete : level);

        table->renumbered[index] = number;
        kept = &table->stacks[number - 1];
        kept->allocated_bytes += stack.allocated_bytes;
        kept->allocated_objects += stack.allocated_objects;
    }
}

void memscope_stacks_shorten(struct memscope_stack_table *table) {
    int in_full = min_exponent_in_full(table);

    rebuild(table, level_of(table, in_full), in_full);
    table->idle_before = table->idle;
}
