#include "fork/fork_cost.h"

#include "base/text_file.h"
#include "kernel/cgroup.h"
#include "kernel/own_children.h"
#include "kernel/process.h"

#define MEBIBYTE ((uint64_t)1 << 20)
#define FIRST_NS_OF_A_MEBIBYTE 12500
/* Each page of 4 KiB has a page table entry of 8 bytes. */
#define BYTES_OF_A_TABLE_BYTE 512
/* In a smaller process, the fixed costs of a fork would hide the cost per page. */
#define MIN_MEBIBYTES 16
#define MIN_LEARNED_SLOTS 100000

static _Atomic(uint64_t) ns_of_a_mebibyte = FIRST_NS_OF_A_MEBIBYTE;

static uint64_t own_bytes(void) {
    struct memscope_statm statm;

    if (memscope_statm_read(&statm) != MEMSCOPE_OK || statm.resident_bytes < statm.shared_bytes)
        return 0;
    return statm.resident_bytes - statm.shared_bytes;
}

uint64_t memscope_fork_predicted_ns(void) {
    return own_bytes() / 1024 * atomic_load(&ns_of_a_mebibyte) / 1024;
}

bool memscope_fork_pays(uint64_t work_ns, uint64_t budget_ns, uint64_t fork_ns) {
    return budget_ns == 0 || (work_ns > budget_ns && work_ns > fork_ns);
}

void memscope_fork_took(uint64_t ns) {
    uint64_t mebibytes = own_bytes() / MEBIBYTE;

    if (mebibytes >= MIN_MEBIBYTES && ns >= mebibytes) /* a coarse clock may show 0 */
        atomic_store(&ns_of_a_mebibyte, ns / mebibytes);
}

uint64_t memscope_slot_rate_predict(memscope_slot_rate *rate, uint64_t slots) {
    return slots * atomic_load(rate) / 1000;
}

void memscope_slot_rate_learn(memscope_slot_rate *rate, uint64_t slots, uint64_t took) {
    if (slots >= MIN_LEARNED_SLOTS && took >= slots / 1000) /* a coarse clock may show 0 */
        atomic_store(rate, took / (slots / 1000));
}

static uint64_t free_in_machine(void) {
    char text[4096];
    size_t length;
    uint64_t bytes;
    enum memscope_status status = memscope_text_file_read("/proc/meminfo", text, sizeof text, &length);

    if (status != MEMSCOPE_OK && status != MEMSCOPE_TRUNCATED)
        return UINT64_MAX;
    return memscope_text_bytes(text, "MemAvailable", &bytes) ? bytes : UINT64_MAX;
}

static uint64_t free_in_container(void) {
    struct memscope_cgroup cgroup;

    if (memscope_cgroup_read("self", "/proc", "/sys/fs/cgroup", &cgroup) != MEMSCOPE_OK)
        return UINT64_MAX;
    if (!memscope_cgroup_is_known(&cgroup.hierarchy_headroom))
        return UINT64_MAX;
    return cgroup.hierarchy_headroom.value;
}

void memscope_fork_room_read(uint64_t child_ns, struct memscope_fork_room *room) {
    uint64_t own = own_bytes(), container = free_in_container(), machine = free_in_machine();

    room->needed_bytes = own / BYTES_OF_A_TABLE_BYTE + (child_ns < own ? child_ns : own);
    room->free_bytes = container < machine ? container : machine;
    memscope_sharing_readings_await();
}
