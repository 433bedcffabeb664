/* What allocator.c and its settings answer in a program with nothing preloaded. Silent when right. */
#include "../expect.h"
#include "malloc/allocator.h"
#include "malloc/allocator_settings.h"
#include "malloc/jemalloc.h"

#include <stdlib.h>
#include <string.h>

static void count_and_check(const struct memscope_setting *setting, void *context) {
    ++*(size_t *)context;
    EXPECT(setting->name.start && setting->name.length > 0);
    EXPECT(setting->source);
    EXPECT(setting->type != MEMSCOPE_SETTING_NOT_KNOWN || setting->reason || setting->ignored);
    if (setting->name.length == strlen("arena_max") && strncmp(setting->name.start, "arena_max", 9) == 0) {
        EXPECT(setting->value.number == 3);
        EXPECT(strcmp(setting->source, "MALLOC_ARENA_MAX") == 0);
    }
}

int main(void) {
#ifdef __SANITIZE_ADDRESS__
    SKIP("a sanitizer serves malloc");
#endif
    const struct memscope_allocator *allocator = memscope_allocator_current();
    const struct memscope_other_allocator *others;
    struct memscope_jemalloc_stats stats;
    size_t settings = 0;

    setenv("MALLOC_ARENA_MAX", "3", 1);
    setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=100:glibc.malloc.tcache_max=1032", 1);
    memscope_allocator_load();
    setenv("MALLOC_ARENA_MAX", "4", 1);
    memscope_allocator_load();
    EXPECT(memscope_allocator_settings(count_and_check, &settings));
    EXPECT(memscope_allocator_others(&others) == 0);
    EXPECT(memscope_jemalloc_read_stats(&stats) == MEMSCOPE_UNSUPPORTED);
    EXPECT(memscope_jemalloc_unsupported_reason());
    EXPECT(allocator->proof[0]);
#ifdef __GLIBC__
    EXPECT(allocator->name == MEMSCOPE_ALLOCATOR_GLIBC && allocator->proved && allocator->version[0]);
    EXPECT(settings > 10);
    EXPECT(memscope_glibc_cache_slots() == 6400);
#else
    EXPECT(allocator->name == MEMSCOPE_ALLOCATOR_MUSL && allocator->proved);
    EXPECT(strstr(allocator->path, "musl") || strstr(allocator->path, "libc"));
#endif
    return 0;
}
