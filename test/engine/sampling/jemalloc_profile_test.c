/* The parser of jemalloc's profiles, on made-up ones. */
#include "../expect.h"
#include "sampling/jemalloc_profile.h"

#include <string.h>

#define HEAD "heap_v2/524288\n  t*: 1: 1048576 [0: 0]\n"
#define COUNTS "  t*: 1: 1048576 [0: 0]\n  t0: 1: 1048576 [0: 0]\n"

static enum memscope_status parse(const char *text, struct memscope_scratch *scratch,
                                  struct memscope_sampled_stacks *stacks) {
    return memscope_jemalloc_profile_parse(text, strlen(text), scratch, stacks);
}

static void test_stacks(struct memscope_scratch *scratch) {
    struct memscope_sampled_stacks stacks;

    EXPECT(parse(HEAD "@ 0x7f00 0x7f10\n" COUNTS "@\n" COUNTS "\nMAPPED_LIBRARIES:\n", scratch, &stacks) ==
           MEMSCOPE_OK);
    EXPECT(stacks.count == 2 && stacks.list[0].length == 2 && stacks.list[1].length == 0);
    EXPECT(stacks.list[0].words[0] == 0x7f00 && stacks.list[0].words[1] == 0x7f10 && stacks.list[0].samples == 1);
}

static void test_other_forms(struct memscope_scratch *scratch) {
    static const char *const texts[] = {"", "heap_v2/0\n", HEAD "@ 7f00\n" COUNTS,
                                        HEAD "@ 0x7f00\n  t0: 1: 1 [0: 0]\n"};
    struct memscope_sampled_stacks stacks;

    for (size_t index = 0; index < sizeof texts / sizeof *texts; index++)
        EXPECT(parse(texts[index], scratch, &stacks) == MEMSCOPE_MALFORMED);
}

/* Tries every size of room: first too little for the list, then enough for the list but not for the words. */
static void test_without_room(struct memscope_scratch *scratch) {
    struct memscope_sampled_stacks stacks;
    size_t reserved = scratch->reserved, used = scratch->used, room = 0;
    enum memscope_status status;

    do {
        scratch->used = used;
        scratch->reserved = used + room;
        status = parse(HEAD "@ 0x7f00 0x7f10\n" COUNTS, scratch, &stacks);
        EXPECT(status == MEMSCOPE_NO_MEMORY || (status == MEMSCOPE_OK && room > sizeof *stacks.list));
        room++;
    } while (status != MEMSCOPE_OK);
    scratch->reserved = reserved;
}

int main(void) {
    struct memscope_scratch scratch;

    EXPECT(memscope_scratch_open(&scratch) == MEMSCOPE_OK);
    test_stacks(&scratch);
    test_other_forms(&scratch);
    test_without_room(&scratch);
    memscope_scratch_close(&scratch);
    return 0;
}
