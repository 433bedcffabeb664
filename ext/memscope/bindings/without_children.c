#include "bindings/without_children.h"

#include "kernel/own_children.h"
#include "values.h"

#define TRIES 3

struct lone_reading {
    bool (*read)(void *argument);
    void *argument;
    bool waits;
};

static void read_alone(void *argument) {
    const struct lone_reading *reading = argument;

    for (int left = TRIES; left > 0; left--) {
        bool alone = reading->waits && memscope_own_children_await();

        if (!reading->read(reading->argument) || !alone)
            return;
    }
}

uint64_t memscope_without_children(bool (*read)(void *argument), void *argument, bool waits) {
    struct lone_reading reading = {read, argument, waits};

    return memscope_without_gvl(read_alone, &reading);
}
