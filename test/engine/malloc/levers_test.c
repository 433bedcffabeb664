/* Which levers run and which are refused when no allocator is preloaded. */
#include "../expect.h"
#include "malloc/allocator.h"
#include "malloc/jemalloc_control.h"
#include "malloc/levers.h"

#include <string.h>

static void check_jemalloc_is_not_touched(void) {
    bool on;
    int64_t ms;

    EXPECT(memscope_jemalloc_arena_count() == 0);
    EXPECT(memscope_jemalloc_decay() == MEMSCOPE_UNSUPPORTED);
    EXPECT(memscope_jemalloc_purge() == MEMSCOPE_UNSUPPORTED);
    EXPECT(memscope_jemalloc_flush_thread_cache() == MEMSCOPE_UNSUPPORTED);
    EXPECT(memscope_jemalloc_read_decay_ms(0, MEMSCOPE_JEMALLOC_DIRTY, &ms) == MEMSCOPE_UNSUPPORTED);
    EXPECT(memscope_jemalloc_set_decay_ms(MEMSCOPE_LATER_ARENAS, MEMSCOPE_JEMALLOC_MUZZY, 0) == MEMSCOPE_UNSUPPORTED);
    EXPECT(memscope_jemalloc_read_background_thread(&on) == MEMSCOPE_UNSUPPORTED);
    EXPECT(memscope_jemalloc_set_background_thread(true) == MEMSCOPE_UNSUPPORTED);
}

int main(void) {
    uint64_t bytes;

    memscope_allocator_load();
    check_jemalloc_is_not_touched();
    EXPECT(!memscope_lever_collectable_bytes(&bytes));
    for (int lever = 0; lever < MEMSCOPE_LEVER_COUNT; lever++) {
        enum memscope_lever each = (enum memscope_lever)lever;
        bool missing = memscope_lever_missing(each) != NULL;

        EXPECT(strlen(memscope_lever_name(each)) > 0);
        EXPECT(memscope_lever_run(each) == (missing ? MEMSCOPE_UNSUPPORTED : MEMSCOPE_OK));
    }
    EXPECT(memscope_lever_missing(MEMSCOPE_LEVER_COUNT) != NULL);
    EXPECT((memscope_lever_missing(MEMSCOPE_LEVER_TRIM) == NULL) ==
           (memscope_allocator_current()->name == MEMSCOPE_ALLOCATOR_GLIBC));
    return 0;
}
