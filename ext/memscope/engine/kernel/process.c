#include "kernel/process.h"

#include "base/copy.h"
#include "base/descriptors.h"
#include "base/mapped_array.h"
#include "base/scratch.h"
#include "base/text_file.h"
#include "kernel/own_children.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The first fits /proc/PID/status with hundreds of groups and 4,096 CPUs, the second with any number of groups. */
#define TEXT_CAPACITY 8192
#define LARGE_TEXT_CAPACITY ((size_t)1 << 20)
#define STATM_CAPACITY 256

static bool parse_pages(const char **cursor, uint64_t page_size, uint64_t *bytes) {
    uint64_t pages;

    while (**cursor == ' ')
        (*cursor)++;
    return memscope_text_decimal(cursor, &pages) && !__builtin_mul_overflow(pages, page_size, bytes);
}

enum memscope_status memscope_statm_parse(const char *text, struct memscope_statm *statm) {
    uint64_t page_size = (uint64_t)sysconf(_SC_PAGESIZE);
    bool complete = parse_pages(&text, page_size, &statm->size_bytes) &&
                    parse_pages(&text, page_size, &statm->resident_bytes) &&
                    parse_pages(&text, page_size, &statm->shared_bytes);

    return complete ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
}

#define IN_KIB_bytes true
#define IN_KIB_count false
#define IN_KIB_boolean false
#define FIGURE(field, type, file, key, other_file, other_key)                                                          \
    {#field, offsetof(struct memscope_process_figures, field), IN_KIB_##type, {{file, key}, {other_file, other_key}}},
const struct memscope_process_places memscope_process_places[] = {MEMSCOPE_FIGURES_ProcessMemory(FIGURE)};
#undef FIGURE

enum memscope_status memscope_process_memory_parse(const char *text, const char *file,
                                                   struct memscope_process_memory *memory) {
    bool found = false;

    for (size_t field = 0; field < 2 * (size_t)MEMSCOPE_PROCESS_FIELD_COUNT; field++) {
        const struct memscope_process_places *figure = &memscope_process_places[field / 2];
        const char *from = figure->places[field % 2].file, *key = figure->places[field % 2].key;
        uint64_t *known = (uint64_t *)(void *)((char *)&memory->figures + figure->offset), value;

        if (from == NULL || strcmp(from, file) != 0 ||
            !(figure->in_kib ? memscope_text_bytes(text, key, &value) : memscope_text_number(text, key, "", &value)))
            continue;
        found = true;
        if (((memory->found[0] | memory->found[1]) >> (field / 2) & 1) != 0)
            continue;
        *known = value;
        memory->found[field % 2] |= UINT64_C(1) << (field / 2);
    }
    return found ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
}

/*
 * The kept descriptor, -1 if none. It is read only after F_GETSIG confirms that the number still names the open file
 * that was marked at opening, which takes half the time of an fstat. A forked child inherits it, and closes it.
 */
static _Atomic(int) kept = -1;

/*
 * The mark: the signal that the file would send if it were asynchronous, which it never is. Other files have 0, unless
 * their owner has chosen a signal, and nobody chooses this one.
 */
#define MARK SIGWINCH

/*
 * In a page that the kernel wipes in a forked child (MADV_WIPEONFORK, Linux 4.14): there, it is INHERITED. NULL without
 * such a page: then no descriptor is kept. OPENING: by a thread, perhaps the one that this signal handler interrupted.
 */
enum state { INHERITED, OPENING, OPENED };
static _Atomic(_Atomic(int) *) state_in_page;

static _Atomic(int) *map_state(void) {
    static _Atomic(bool) mapped;
    _Atomic(int) *state = atomic_exchange(&mapped, true) ? NULL : memscope_lasting_map(sizeof *state);

#ifdef MADV_WIPEONFORK
    if (state != NULL && madvise((void *)state, sizeof *state, MADV_WIPEONFORK) == 0)
        atomic_store(&state_in_page, state);
#endif
    return atomic_load(&state_in_page);
}

/* Returns true if the number still refers to the file that was opened under it. */
static bool still_kept(int descriptor) {
    return descriptor >= 0 && fcntl(descriptor, F_GETSIG) == MARK;
}

static enum memscope_status read_descriptor(int descriptor, struct memscope_statm *statm) {
    char text[STATM_CAPACITY];
    ssize_t length = pread(descriptor, text, sizeof text - 1, 0);

    if (length < 0)
        return memscope_status_of_errno(errno);
    text[length] = '\0';
    return memscope_statm_parse(text, statm);
}

static enum memscope_status read_once(struct memscope_statm *statm) {
    char path[MEMSCOPE_PROC_PATH], text[STATM_CAPACITY];
    size_t length;
    enum memscope_status status =
        memscope_text_file_read(memscope_path_in_proc(path, "statm"), text, sizeof text, &length);

    return status == MEMSCOPE_OK ? memscope_statm_parse(text, statm) : status;
}

/* Never opens one of the three standard numbers: a host that closed them expects them to be free or its own. */
static void open_kept(void) {
    char path[MEMSCOPE_PROC_PATH];
    int descriptor = open(memscope_path_in_proc(path, "statm"), O_RDONLY | O_CLOEXEC);

    if (descriptor >= 0 && (descriptor <= STDERR_FILENO || fcntl(descriptor, F_SETSIG, MARK) != 0)) {
        close(descriptor);
        descriptor = -1;
    }
    atomic_store(&kept, descriptor);
}

/*
 * Opens a descriptor to keep, unless another thread is opening one. Closes the kept one only if it was inherited from a
 * parent: otherwise other code has closed or reused its number.
 */
static void keep_another(_Atomic(int) *state, int before) {
    bool still;

    if (before == OPENING || !atomic_compare_exchange_strong(state, &before, OPENING))
        return;
    still = still_kept(atomic_load(&kept));
    if (still && before == INHERITED)
        close(atomic_load(&kept));
    if (!still || before == INHERITED)
        open_kept();
    atomic_store(state, OPENED);
}

enum memscope_status memscope_statm_read(struct memscope_statm *statm) {
    _Atomic(int) *state = atomic_load(&state_in_page);
    int now, descriptor;

    if (state == NULL && (state = map_state()) == NULL)
        return read_once(statm);
    now = atomic_load(state);
    descriptor = atomic_load(&kept);
    if (now == OPENED && still_kept(descriptor) && read_descriptor(descriptor, statm) == MEMSCOPE_OK)
        return MEMSCOPE_OK;
    keep_another(state, now);
    return read_once(statm);
}

static enum memscope_status read_text(const char *path, char *text, size_t capacity, const char *file,
                                      struct memscope_process_memory *memory) {
    size_t length;
    enum memscope_status status = memscope_text_file_read(path, text, capacity, &length);

    return status == MEMSCOPE_OK ? memscope_process_memory_parse(text, file, memory) : status;
}

static enum memscope_status read_file(const char *process, const char *file, struct memscope_process_memory *memory) {
    char path[64], text[TEXT_CAPACITY], *larger;
    enum memscope_status status;

    if (snprintf(path, sizeof path, "/proc/%s/%s", memscope_name_in_proc(process), file) >= (int)sizeof path)
        return MEMSCOPE_NOT_FOUND;
    status = read_text(path, text, sizeof text, file, memory);
    if (status != MEMSCOPE_TRUNCATED || (larger = memscope_array_map(LARGE_TEXT_CAPACITY, 1)) == NULL)
        return status;
    status = read_text(path, larger, LARGE_TEXT_CAPACITY, file, memory);
    memscope_array_unmap(larger);
    return status;
}

enum memscope_status memscope_process_status_read(const char *process, struct memscope_process_memory *memory) {
    *memory = (struct memscope_process_memory){.figures = memscope_process_figures_unknown};
    return memory->status = read_file(process, "status", memory);
}

enum memscope_status memscope_process_memory_read(const char *process, struct memscope_process_memory *memory) {
    uint64_t begun = memscope_sharing_reading_begin();

    *memory = (struct memscope_process_memory){.figures = memscope_process_figures_unknown};
    memory->smaps_rollup = read_file(process, "smaps_rollup", memory);
    if (memscope_sharing_reading_end(begun) == MEMSCOPE_SHARED && strcmp(process, "self") == 0)
        *memory = (struct memscope_process_memory){.figures = memscope_process_figures_unknown,
                                                   .smaps_rollup = MEMSCOPE_SHARED};
    memory->status = read_file(process, "status", memory);
    if (memory->figures.private_clean_bytes != MEMSCOPE_UNKNOWN &&
        memory->figures.private_dirty_bytes != MEMSCOPE_UNKNOWN)
        memory->figures.uss_bytes = memory->figures.private_clean_bytes + memory->figures.private_dirty_bytes;
    return memory->smaps_rollup == MEMSCOPE_OK ? MEMSCOPE_OK : memory->status;
}

/* ---- the peak of RSS -------------------------------------------------------------------------------------------- */

enum memscope_status memscope_peak_reset(void) {
    int file = memscope_descriptor_open("/proc/self/clear_refs", O_WRONLY);
    enum memscope_status status;

    if (file < 0)
        return memscope_status_of_errno(errno);
    status = write(file, "5", 1) == 1 ? MEMSCOPE_OK : memscope_status_of_errno(errno);
    memscope_descriptor_close(file);
    return status;
}

enum memscope_status memscope_peak_read(uint64_t *bytes) {
    struct memscope_process_memory memory;
    enum memscope_status status = memscope_process_status_read("self", &memory);

    if (status != MEMSCOPE_OK)
        return status;
    *bytes = memory.figures.peak_rss_bytes;
    return *bytes != MEMSCOPE_UNKNOWN ? MEMSCOPE_OK : MEMSCOPE_NOT_FOUND;
}
