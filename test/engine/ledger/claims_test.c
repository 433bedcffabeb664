#include "../expect.h"
#include "ledger/claims.h"

#include <string.h>

#define SPACE 4096

/* The expected owner of every address: the first that claimed it, as the interface promises. */
static unsigned char owners[SPACE];
static unsigned seed = 20231;

static unsigned next_random(unsigned below) {
    seed = seed * 1103515245u + 12345u;
    return (seed >> 8) % below;
}

static void check_against_owners(const struct memscope_claims *claims) {
    uintptr_t last_end = 0;
    size_t covered = 0, owned = 0;

    EXPECT(claims->settled == claims->count);
    for (size_t index = 0; index < claims->count; index++) {
        const struct memscope_claim *claim = &claims->list[index];

        EXPECT(claim->start >= last_end && claim->start < claim->end && claim->end <= SPACE);
        last_end = claim->end;
        for (uintptr_t address = claim->start; address < claim->end; address++)
            EXPECT(owners[address] == claim->item);
        covered += claim->end - claim->start;
    }
    for (size_t address = 0; address < SPACE; address++)
        owned += owners[address] != 0;
    EXPECT(covered == owned);
}

/* Each round claims disjoint ranges (as one kind of owner does), and settles them. */
static void claim_round(struct memscope_claims *claims, unsigned char owner) {
    uintptr_t address = next_random(64);
    struct {
        uintptr_t start, end;
    } ranges[SPACE];
    size_t count = 0;

    while (address < SPACE) {
        uintptr_t end = address + 1 + next_random(80);

        ranges[count].start = address;
        ranges[count++].end = end < SPACE ? end : SPACE;
        address = end + next_random(200);
    }
    for (size_t index = 0; index < count; index++) { /* shuffles the ranges */
        size_t other = next_random((unsigned)count);
        uintptr_t start = ranges[index].start, end = ranges[index].end;

        ranges[index] = ranges[other];
        ranges[other].start = start;
        ranges[other].end = end;
    }
    for (size_t index = 0; index < count; index++) {
        memscope_claims_add(claims, ranges[index].start, ranges[index].end, MEMSCOPE_ROW_arenas, owner);
        for (uintptr_t taken = ranges[index].start; taken < ranges[index].end; taken++)
            if (owners[taken] == 0)
                owners[taken] = owner;
    }
    memscope_claims_settle(claims);
}

static void test_first_claim_stands(void) {
    struct memscope_scratch list, buffer;
    struct memscope_claims claims;

    EXPECT(memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&buffer) == MEMSCOPE_OK);
    for (int trial = 0; trial < 50; trial++) {
        memset(owners, 0, sizeof owners);
        list.used = 0;
        memscope_claims_open(&claims, &list, &buffer);
        for (unsigned char owner = 1; owner <= 6; owner++) {
            claim_round(&claims, owner);
            check_against_owners(&claims);
        }
        EXPECT(!claims.exhausted);
    }
    memscope_scratch_close(&list);
    memscope_scratch_close(&buffer);
}

static void test_gaps_are_what_nobody_claimed(void) {
    struct memscope_scratch list, buffer;
    struct memscope_claims claims;
    uintptr_t cursor = 50, start, end;

    EXPECT(memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&buffer) == MEMSCOPE_OK);
    memscope_claims_open(&claims, &list, &buffer);
    memscope_claims_add(&claims, 100, 200, MEMSCOPE_ROW_arenas, 1);
    memscope_claims_add(&claims, 200, 300, MEMSCOPE_ROW_arenas, 1);
    memscope_claims_add(&claims, 400, 500, MEMSCOPE_ROW_arenas, 1);
    memscope_claims_settle(&claims);
    EXPECT(memscope_claims_next_gap(&claims, &cursor, 450, &start, &end) && start == 50 && end == 100);
    EXPECT(memscope_claims_next_gap(&claims, &cursor, 450, &start, &end) && start == 300 && end == 400);
    EXPECT(!memscope_claims_next_gap(&claims, &cursor, 450, &start, &end));
    cursor = 150;
    EXPECT(!memscope_claims_next_gap(&claims, &cursor, 300, &start, &end));
    memscope_scratch_close(&list);
    memscope_scratch_close(&buffer);
}

/* Claims that overlap and are settled together (the reading races with the process): nothing is counted twice. */
static void test_overlap_is_cut(void) {
    struct memscope_scratch list, buffer;
    struct memscope_claims claims;

    EXPECT(memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&buffer) == MEMSCOPE_OK);
    memscope_claims_open(&claims, &list, &buffer);
    memscope_claims_add(&claims, 150, 250, MEMSCOPE_ROW_arenas, 1);
    memscope_claims_add(&claims, 100, 200, MEMSCOPE_ROW_mmapped, 1);
    memscope_claims_add(&claims, 160, 170, MEMSCOPE_ROW_threads, 1);
    memscope_claims_settle(&claims);
    EXPECT(claims.count == 2);
    EXPECT(claims.list[0].start == 100 && claims.list[0].end == 200);
    EXPECT(claims.list[1].start == 200 && claims.list[1].end == 250);
    memscope_scratch_close(&list);
    memscope_scratch_close(&buffer);
}

int main(void) {
    test_first_claim_stands();
    test_gaps_are_what_nobody_claimed();
    test_overlap_is_cut();
    return 0;
}
