#include "../expect.h"
#include "base/address_map.h"

#include <pthread.h>
#include <stdlib.h>

#define BLOCKS 100000

static void test_keeps_the_number_of_each_address(void) {
    struct memscope_address_map *map = memscope_address_map_create();
    const uintptr_t last = ((uintptr_t)1 << MEMSCOPE_ADDRESS_BITS) - 8;

    EXPECT(map != NULL);
    for (uint32_t index = 1; index <= BLOCKS; index++)
        memscope_address_map_set(map, (uintptr_t)index * 48, index);
    for (uint32_t index = 1; index <= BLOCKS; index++)
        EXPECT(memscope_address_map_get(map, (uintptr_t)index * 48) == index);
    EXPECT(memscope_address_map_get(map, 48 + 8) == 0);
    memscope_address_map_set(map, last, 7);
    EXPECT(memscope_address_map_get(map, last) == 7);
    memscope_address_map_set(map, 48, 0);
    EXPECT(memscope_address_map_get(map, 48) == 0 && memscope_address_map_get(map, 96) == 2);
    EXPECT(atomic_load(&map->lost) == 0);
}

static void test_forgetting_what_it_does_not_know_takes_no_room(void) {
    struct memscope_address_map *map = memscope_address_map_create();

    memscope_address_map_set(map, 0, 0);
    memscope_address_map_set(map, UINTPTR_MAX & -(uintptr_t)16, 0);
    EXPECT(atomic_load(&map->taken) == 0 && atomic_load(&map->lost) == 0);
}

static void test_counts_what_is_beyond_user_space_as_lost(void) {
    struct memscope_address_map *map = memscope_address_map_create();
    const uintptr_t beyond = (uintptr_t)1 << MEMSCOPE_ADDRESS_BITS;

    memscope_address_map_set(map, beyond, 7);
    EXPECT(memscope_address_map_get(map, beyond) == 0 && atomic_load(&map->lost) == 1);
}

/* 1 GiB has room for the numbers of 2 GiB of addresses. */
static void test_loses_what_it_has_no_room_for(void) {
    struct memscope_address_map *map = memscope_address_map_create();
    uint64_t kept = 0;

    for (uintptr_t part = 0; part < 4096; part++)
        memscope_address_map_set(map, part << MEMSCOPE_ADDRESS_CHUNK_BITS, 1);
    for (uintptr_t part = 0; part < 4096; part++)
        kept += memscope_address_map_get(map, part << MEMSCOPE_ADDRESS_CHUNK_BITS);
    EXPECT(kept > 1000 && kept < 1025 && kept + atomic_load(&map->lost) == 4096);
}

static void test_takes_a_number_once(void) {
    struct memscope_address_map *map = memscope_address_map_create();

    EXPECT(memscope_address_map_take(map, 4096) == 0 && memscope_address_map_take(NULL, 4096) == 0);
    memscope_address_map_set(map, 4096, 7);
    EXPECT(memscope_address_map_take(map, 4096) == 7 && memscope_address_map_take(map, 4096) == 0);
    EXPECT(memscope_address_map_get(map, 4096) == 0);
}

static struct memscope_address_map *shared;

static void *set_every_fourth(void *first) {
    for (uintptr_t index = (uintptr_t)first; index < BLOCKS; index += 4)
        memscope_address_map_set(shared, index << 14, (uint32_t)index + 1);
    return NULL;
}

static void test_threads_set_numbers_at_once(void) {
    pthread_t threads[4];

    shared = memscope_address_map_create();
    for (uintptr_t first = 0; first < 4; first++)
        EXPECT(pthread_create(&threads[first], NULL, set_every_fourth, (void *)first) == 0);
    for (size_t index = 0; index < 4; index++)
        pthread_join(threads[index], NULL);
    for (uintptr_t index = 0; index < BLOCKS; index++)
        EXPECT(memscope_address_map_get(shared, index << 14) == index + 1);
}

int main(void) {
    test_keeps_the_number_of_each_address();
    test_forgetting_what_it_does_not_know_takes_no_room();
    test_counts_what_is_beyond_user_space_as_lost();
    test_loses_what_it_has_no_room_for();
    test_takes_a_number_once();
    test_threads_set_numbers_at_once();
    return 0;
}
