/* Stacks by glibc's lists of threads, which change while they are read. */
#include "../expect.h"
#include "ledger/stacks.h"

#include <sys/mman.h>
#include <unistd.h>

#ifdef __GLIBC__

#define STACKS 3
#define STACK_PAGES 4

struct node {
    struct node *next, *previous;
};

/* As much of struct pthread as is read: it lies at the end of its stack. */
struct descriptor {
    struct node node;
    char *stack;
    size_t stack_bytes;
};

static struct { struct node used, user, cached; } linker_state;
static struct descriptor *descriptors[STACKS];
static struct memscope_own_memory own;

static const uint32_t used_stacks[3] = {0, 1, 0};
static const uint32_t user_stacks[3] = {0, 1, sizeof(struct node)};
static const uint32_t list_node[3] = {0, 1, 0};
static const uint32_t descriptor_size = sizeof(struct descriptor);

static const struct memscope_thread_symbols symbols = {.linker_state = &linker_state,
                                                       .used_stacks = used_stacks,
                                                       .user_stacks = user_stacks,
                                                       .list_node = list_node,
                                                       .descriptor_size = &descriptor_size};

static void link_nodes(struct node *left, struct node *right) {
    left->next = right;
    right->previous = left;
}

static void make_stacks(void) {
    size_t bytes = STACK_PAGES * (size_t)sysconf(_SC_PAGESIZE);

    for (size_t index = 0; index < STACKS; index++) {
        char *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        EXPECT(stack != MAP_FAILED);
        descriptors[index] = (struct descriptor *)(stack + bytes - sizeof(struct descriptor));
        *descriptors[index] = (struct descriptor){.stack = stack, .stack_bytes = bytes};
    }
}

/* The first stack is live, the others are cached. */
static void link_lists(void) {
    link_nodes(&linker_state.user, &linker_state.user);
    link_nodes(&linker_state.used, &descriptors[0]->node);
    link_nodes(&descriptors[0]->node, &linker_state.used);
    link_nodes(&linker_state.cached, &descriptors[1]->node);
    link_nodes(&descriptors[1]->node, &descriptors[2]->node);
    link_nodes(&descriptors[2]->node, &linker_state.cached);
}

static struct memscope_stack_counts count_stacks(void) {
    struct memscope_stack_counts counts = {0};
    struct memscope_scratch list, work;
    struct memscope_claims claims;
    const struct memscope_search search = {.memory = &own, .claims = &claims};

    EXPECT(memscope_scratch_open(&list) == MEMSCOPE_OK && memscope_scratch_open(&work) == MEMSCOPE_OK);
    memscope_claims_open(&claims, &list, &work);
    EXPECT(memscope_stacks_claim_threads(&symbols, &search, &counts) == MEMSCOPE_OK);
    EXPECT(claims.count == counts.live_threads + counts.cached_stacks);
    memscope_claims_settle(&claims);
    EXPECT(claims.count <= STACKS);
    memscope_scratch_close(&work);
    memscope_scratch_close(&list);
    return counts;
}

static void check_lists_at_rest(void) {
    struct memscope_stack_counts counts;

    link_lists();
    counts = count_stacks();
    EXPECT(counts.live_threads == 1 && counts.cached_stacks == 2);
}

/* The live thread has just ended: its node was read as the first of one list, and leads to the other. */
static void check_a_stack_that_has_moved_to_another_list(void) {
    struct memscope_stack_counts counts;

    link_lists();
    descriptors[0]->node.next = &descriptors[1]->node;
    counts = count_stacks();
    EXPECT(counts.live_threads == 3 && counts.cached_stacks == 2);
    descriptors[0]->node.next = &linker_state.cached;
    counts = count_stacks();
    EXPECT(counts.live_threads == 1 && counts.cached_stacks == 2);
}

int main(void) {
    EXPECT(memscope_own_memory_open(&own) == MEMSCOPE_OK);
    make_stacks();
    check_lists_at_rest();
    check_a_stack_that_has_moved_to_another_list();
    memscope_own_memory_close(&own);
    return 0;
}

#else

int main(void) {
    SKIP("this C library does not describe its threads");
}

#endif
