#include "sampling/import_counter.h"

#include "sampling/import_sampler.h"

#include <malloc.h>

static __thread struct {
    bool counts;
    uint64_t allocated, freed;
} thread;

static bool running;

static void allocated(void *block) {
    if (thread.counts)
        thread.allocated += malloc_usable_size(block);
}

/* Each block has a number, so that realloc puts it back. */
static uint32_t freed(void *block) {
    if (thread.counts && block != NULL)
        thread.freed += malloc_usable_size(block);
    return 1;
}

static void put_back(void *block, uint32_t number, bool moved) {
    (void)number;
    if (moved)
        allocated(block);
    else if (thread.counts)
        thread.freed -= malloc_usable_size(block);
}

enum memscope_status memscope_import_counter_start(void) {
    static const struct memscope_block_record record = {allocated, freed, put_back};
    enum memscope_status status = memscope_import_sampler_record(&record);

    running = status == MEMSCOPE_OK;
    if (running && memscope_import_sampler_patches().slots == 0) {
        memscope_import_counter_stop();
        status = MEMSCOPE_NOT_FOUND;
    }
    thread.allocated = thread.freed = 0;
    thread.counts = running;
    return status;
}

struct memscope_thread_bytes memscope_import_counter_bytes(void) {
    return (struct memscope_thread_bytes){&thread.allocated, &thread.freed};
}

void memscope_import_counter_stop(void) {
    if (!running)
        return;
    running = thread.counts = false;
    memscope_import_sampler_stop();
    memscope_sample_table_clear(0);
}

bool memscope_import_counter_runs(void) {
    return running;
}
