#include "kernel/process.h"

#include "base/mapped_array.h"
#include "base/text_file.h"
#include "kernel/own_children.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Holds all of /proc/PID/status with hundreds of groups and 4,096 CPUs; the larger one, with all groups there can be.
 */
#define TEXT_CAPACITY 8192
#define LARGE_TEXT_CAPACITY ((size_t)1 << 20)
#define STATM_CAPACITY 256

static bool parse_pages(const char **cursor, uint64_t page_size, uint64_t *bytes) {
    uint64_t pages;

    while (**cursor == ' ')
        (*cursor)++;
    if (!memscope_text_decimal(cursor, &pages) || pages > UINT64_MAX / page_size)
        return false;
    *bytes = pages * page_size;
    return true;
}

enum memscope_status memscope_statm_parse(const char *text, struct memscope_statm *statm) {
    uint64_t page_size = (uint64_t)sysconf(_SC_PAGESIZE);
    bool complete = parse_pages(&text, page_size, &statm->size_bytes) &&
                    parse_pages(&text, page_size, &statm->resident_bytes) &&
                    parse_pages(&text, page_size, &statm->shared_bytes);

    return complete ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
}

enum unit { COUNT, FLAG, BYTES };

struct figure {
    const char *key;
    enum memscope_process_source source;
    enum unit unit;
};

#define FIGURE(field, source, key, unit) {key, MEMSCOPE_PROCESS_##source, unit},
static const struct figure figures[] = {
#include "kernel/process_memory.def"
};
#undef FIGURE

enum memscope_process_source memscope_process_source_of(enum memscope_process_field field) {
    return figures[field].source;
}

const char *memscope_process_key_of(enum memscope_process_field field) {
    return figures[field].key;
}

enum memscope_status memscope_process_memory_parse(const char *text, enum memscope_process_source source,
                                                   struct memscope_process_memory *memory) {
    bool found = false;

    for (size_t field = 0; field < MEMSCOPE_PROCESS_FIELD_COUNT; field++) {
        const struct figure *figure = &figures[field];
        uint64_t *value = &memory->values[field];

        if (figure->source != source || !(figure->unit == BYTES ? memscope_text_bytes(text, figure->key, value)
                                                                : memscope_text_number(text, figure->key, "", value)))
            continue;
        memory->present |= UINT64_C(1) << field;
        found = true;
    }
    return found ? MEMSCOPE_OK : MEMSCOPE_MALFORMED;
}

/*
 * The kept descriptor, with its device and inode as fstat reported them at opening. It is safe to change all three
 * while another thread uses them: a descriptor is read only after fstat confirms that the number now names a statm of
 * this process. All three survive fork, so that a child can close the descriptor it inherited.
 */
static struct {
    _Atomic int descriptor;
    _Atomic uint64_t device;
    _Atomic uint64_t inode;
} kept = {-1, 0, 0};

/*
 * The page that the kernel wipes in a forked child (MADV_WIPEONFORK, Linux 4.14). A `turn` of 0 shows, without a system
 * call, that this process has not opened a descriptor yet: it may be a new child. If the kernel cannot wipe the page,
 * `turn` carries the pid of the process that wrote it.
 */
struct fork_page {
    _Atomic uint64_t turn;     /* upper half: owner_bits; lower half: a count of openings, and the phase */
    _Atomic bool is_inherited; /* the kernel cannot wipe the page */
};

#define OPENING 1U /* a thread is opening a descriptor, perhaps the thread that this signal handler interrupted */
#define OPENED 2U
#define PHASES (OPENING | OPENED)
#define NEXT_OPENING 4U

static _Atomic(struct fork_page *) fork_page;

static size_t page_length(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

void memscope_process_own_page(uintptr_t *start, uintptr_t *end) {
    struct fork_page *page = atomic_load(&fork_page);

    *start = (uintptr_t)page;
    *end = page ? (uintptr_t)page + page_length() : 0;
}

/* Returns NULL if no page can be mapped. If two threads map a page at once, one of the two pages is unmapped. */
static struct fork_page *map_fork_page(void) {
    struct fork_page *none = NULL;
    struct fork_page *page = mmap(NULL, page_length(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (page == MAP_FAILED)
        return NULL;
#ifdef MADV_WIPEONFORK
    if (madvise(page, page_length(), MADV_WIPEONFORK) != 0)
#endif
        atomic_store(&page->is_inherited, true);
    if (atomic_compare_exchange_strong(&fork_page, &none, page))
        return page;
    munmap(page, page_length());
    return none;
}

static uint64_t owner_bits(struct fork_page *page) {
    return atomic_load(&page->is_inherited) ? (uint64_t)(uint32_t)getpid() << 32 : 0;
}

/*
 * The two system calls of a reading, without the C library's overhead: glibc's fstat calls newfstatat with an empty
 * path (since 2.33), which is a fifth slower, and glibc's pread is a cancellation point. On these two architectures
 * struct stat is the kernel's own.
 */
#if defined(SYS_fstat) && defined(__LP64__) && (defined(__x86_64__) || defined(__aarch64__))
static int stat_descriptor(int descriptor, struct stat *file) {
    return (int)syscall(SYS_fstat, descriptor, file);
}

static ssize_t read_from_start(int descriptor, char *text, size_t size) {
    return (ssize_t)syscall(SYS_pread64, descriptor, text, size, 0L);
}
#else
static int stat_descriptor(int descriptor, struct stat *file) {
    return fstat(descriptor, file);
}

static ssize_t read_from_start(int descriptor, char *text, size_t size) {
    return pread(descriptor, text, size, 0);
}
#endif

static bool identify(int descriptor, uint64_t *device, uint64_t *inode) {
    struct stat file;

    if (stat_descriptor(descriptor, &file) != 0)
        return false;
    *device = (uint64_t)file.st_dev;
    *inode = (uint64_t)file.st_ino;
    return true;
}

/* Whether the number still names the file that was opened under it. */
static bool still_kept(int descriptor) {
    uint64_t device, inode;

    return descriptor >= 0 && identify(descriptor, &device, &inode) && device == atomic_load(&kept.device) &&
           inode == atomic_load(&kept.inode);
}

static enum memscope_status read_descriptor(int descriptor, struct memscope_statm *statm) {
    char text[STATM_CAPACITY];
    ssize_t length;

    do
        length = read_from_start(descriptor, text, sizeof text - 1);
    while (length < 0 && errno == EINTR);
    if (length < 0)
        return memscope_status_of_errno(errno);
    text[length] = '\0';
    return memscope_statm_parse(text, statm);
}

/* Never returns one of the three standard numbers: a host that closed them expects them to be free or its own. */
static int open_statm(void) {
    int descriptor = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    int moved;

    if (descriptor < 0 || descriptor > STDERR_FILENO)
        return descriptor;
    moved = fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    close(descriptor);
    return moved;
}

static enum memscope_status read_once(struct memscope_statm *statm) {
    int descriptor = open_statm();
    enum memscope_status status;

    if (descriptor < 0)
        return memscope_status_of_errno(errno);
    status = read_descriptor(descriptor, statm);
    close(descriptor);
    return status;
}

/*
 * Opens a descriptor to keep. If another thread is opening one, or has opened one since `turn` was loaded, does not
 * wait but reads once, with a temporary descriptor. Closes the kept descriptor only if it was inherited from a parent.
 * If this process opened the kept descriptor, this function runs only when the number no longer refers to statm,
 * because other code has closed or reused it: then the number is not closed.
 */
static enum memscope_status read_anew(struct fork_page *page, uint64_t turn, uint64_t owner,
                                      struct memscope_statm *statm) {
    bool is_first = (turn & PHASES) == 0 || turn >> 32 != owner >> 32;
    uint64_t next = owner | ((turn + NEXT_OPENING) & UINT32_MAX & ~(uint64_t)PHASES);
    uint64_t device = 0, inode = 0;
    int descriptor;

    if (!atomic_compare_exchange_strong(&page->turn, &turn, next | OPENING))
        return read_once(statm);
    if (is_first && still_kept(atomic_load(&kept.descriptor)))
        close(atomic_load(&kept.descriptor));
    descriptor = open_statm();
    if (descriptor >= 0 && !identify(descriptor, &device, &inode)) {
        close(descriptor);
        descriptor = -1;
    }
    atomic_store(&kept.device, device);
    atomic_store(&kept.inode, inode);
    atomic_store(&kept.descriptor, descriptor);
    atomic_store(&page->turn, next | OPENED);
    return descriptor < 0 ? read_once(statm) : read_descriptor(descriptor, statm);
}

enum memscope_status memscope_statm_read(struct memscope_statm *statm) {
    struct fork_page *page = atomic_load(&fork_page);
    uint64_t turn, owner;
    int descriptor;

    if (!page && !(page = map_fork_page()))
        return read_once(statm);
    turn = atomic_load(&page->turn);
    owner = owner_bits(page);
    if (turn >> 32 == owner >> 32 && (turn & OPENING))
        return read_once(statm);
    descriptor = atomic_load(&kept.descriptor);
    if ((turn & OPENED) == 0 || turn >> 32 != owner >> 32 || !still_kept(descriptor))
        return read_anew(page, turn, owner, statm);
    if (read_descriptor(descriptor, statm) == MEMSCOPE_OK)
        return MEMSCOPE_OK;
    return read_once(statm);
}

static enum memscope_status read_file(const char *path, char *text, size_t capacity,
                                      enum memscope_process_source source, struct memscope_process_memory *memory) {
    size_t length;
    enum memscope_status status = memscope_text_file_read(path, text, capacity, &length);

    return status == MEMSCOPE_OK ? memscope_process_memory_parse(text, source, memory) : status;
}

static enum memscope_status read_source(const char *process, const char *name, enum memscope_process_source source,
                                        struct memscope_process_memory *memory) {
    char path[64], text[TEXT_CAPACITY], *larger;
    enum memscope_status status;

    if (snprintf(path, sizeof path, "/proc/%s/%s", process, name) >= (int)sizeof path)
        return MEMSCOPE_NOT_FOUND;
    status = read_file(path, text, sizeof text, source, memory);
    if (status != MEMSCOPE_TRUNCATED || (larger = memscope_array_map(LARGE_TEXT_CAPACITY, 1)) == NULL)
        return status;
    status = read_file(path, larger, LARGE_TEXT_CAPACITY, source, memory);
    memscope_array_unmap(larger);
    return status;
}

enum memscope_status memscope_process_status_read(const char *process, struct memscope_process_memory *memory) {
    return read_source(process, "status", MEMSCOPE_PROCESS_STATUS, memory);
}

enum memscope_status memscope_process_memory_read(const char *process, struct memscope_process_memory *memory) {
    uint64_t begun = memscope_sharing_reading_begin();

    memset(memory, 0, sizeof *memory);
    memory->smaps_rollup = read_source(process, "smaps_rollup", MEMSCOPE_PROCESS_SMAPS_ROLLUP, memory);
    if (memscope_sharing_reading_end(begun) == MEMSCOPE_SHARED && strcmp(process, "self") == 0) {
        memset(memory, 0, sizeof *memory);
        memory->smaps_rollup = MEMSCOPE_SHARED;
    }
    memory->status = memscope_process_status_read(process, memory);
    return memory->smaps_rollup == MEMSCOPE_OK ? MEMSCOPE_OK : memory->status;
}
