#include "malloc/allocator.h"

#include "elf/shared_objects.h"
#include "malloc/allocator_environment.h"
#include "malloc/jemalloc.h"
#include "malloc/mallinfo.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct memscope_allocator current;

const struct memscope_allocator *memscope_allocator_current(void) {
    return &current;
}

const char *memscope_allocator_name_text(enum memscope_allocator_name name) {
    static const char *const texts[] = {
        [MEMSCOPE_ALLOCATOR_UNKNOWN] = "unknown",   [MEMSCOPE_ALLOCATOR_GLIBC] = "glibc",
        [MEMSCOPE_ALLOCATOR_JEMALLOC] = "jemalloc", [MEMSCOPE_ALLOCATOR_MIMALLOC] = "mimalloc",
        [MEMSCOPE_ALLOCATOR_TCMALLOC] = "tcmalloc", [MEMSCOPE_ALLOCATOR_MUSL] = "musl",
    };

    return texts[name];
}

void memscope_allocator_mimalloc_version(int number, char *text, size_t capacity) {
    if (number < 1000)
        snprintf(text, capacity, "%d.%d.%d", number / 100, number / 10 % 10, number % 10);
    else if (number >= 10000)
        snprintf(text, capacity, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    else
        snprintf(text, capacity, "%d", number);
}

void memscope_allocator_tcmalloc_version(memscope_tc_version say, char *text, size_t capacity) {
    int major = 0, minor = 0;
    const char *patch = "";

    say(&major, &minor, &patch);
    snprintf(text, capacity, "%d.%d%s", major, minor, patch ? patch : "");
}

#define WEAK __attribute__((weak))

/*
 * Declared as in mimalloc.h, gperftools/tcmalloc.h, gperftools/malloc_extension_c.h and google/tcmalloc's internal C
 * interface.
 */
extern WEAK int mi_version(void);
extern WEAK bool mi_is_in_heap_region(const void *block);
extern WEAK const char *tc_version(int *major, int *minor, const char **patch);
extern WEAK int MallocExtension_GetNumericProperty(const char *property, size_t *value);
extern WEAK bool MallocExtension_Internal_GetNumericProperty(const char *property, size_t length, size_t *value);
extern WEAK const char *gnu_get_libc_version(void);

#define PROBE_SIZE 12345
#define LARGE_PROBE_SIZE ((size_t)4 << 20) /* untouched, so it costs only address space */
#define LIVE_BYTES_PROPERTY "generic.current_allocated_bytes"

/* A loaded object, and the C libraries and allocators whose symbols it exports. */
struct owner {
    uintptr_t address; /* the address that it was looked up by */
    char path[MEMSCOPE_ALLOCATOR_PATH];
    bool found, is_glibc, is_musl, is_jemalloc;
};

static bool describe_owner(const struct memscope_shared_object *object, void *context) {
    struct owner *owner = context;

    if (!memscope_shared_object_contains(object, owner->address))
        return true;
    owner->found = true;
    snprintf(owner->path, sizeof owner->path, "%s", object->path);
    owner->is_glibc = memscope_shared_object_symbol(object, "gnu_get_libc_version") != NULL;
    owner->is_jemalloc = memscope_shared_object_symbol(object, "mallctl") != NULL;
    owner->is_musl = memscope_shared_object_symbol(object, "__dls3") != NULL; /* a stage of musl's dynamic linker */
    return false;
}

static void find_owner(const void *address, struct owner *owner) {
    *owner = (struct owner){.address = (uintptr_t)address};
    memscope_each_shared_object(describe_owner, owner);
    if (owner->found && owner->path[0] == '\0') {
        ssize_t length = readlink("/proc/self/exe", owner->path, sizeof owner->path - 1);

        owner->path[length > 0 ? length : 0] = '\0';
    }
}

struct malloc_search {
    const void *called;         /* the address of malloc as this extension sees it */
    const void *first_exported; /* in the dynamic linker's lookup order */
    bool called_is_exported;
};

static bool search_malloc(const struct memscope_shared_object *object, void *context) {
    struct malloc_search *search = context;
    const void *exported = memscope_shared_object_symbol(object, "malloc");

    if (exported && !search->first_exported)
        search->first_exported = exported;
    search->called_is_exported = exported && exported == search->called;
    return !search->called_is_exported;
}

/*
 * The code that a call of malloc reaches. If the executable is not position-independent, the address of malloc may be
 * that of its PLT stub. The code is then the first exported malloc in lookup order.
 */
static const void *resolved_malloc(void) {
    struct malloc_search search = {.called = (const void *)(uintptr_t)malloc};

    memscope_each_shared_object(search_malloc, &search);
    return search.called_is_exported || !search.first_exported ? search.called : search.first_exported;
}

/* Proves that malloc and the function are in one object, or that malloc goes through to the function's object. */
static void set_proof(enum memscope_allocator_name name, const struct owner *server, const struct owner *witness,
                      const char *function, const char *seen) {
    if (strcmp(server->path, witness->path) == 0)
        snprintf(current.proof, sizeof current.proof, "malloc and %s are both in %s; %s", function, witness->path,
                 seen);
    else
        snprintf(current.proof, sizeof current.proof, "malloc is in %s and goes through to %s, which has %s: %s",
                 server->path, witness->path, function, seen);
    memcpy(current.path, witness->path, sizeof current.path);
    current.name = name;
    current.proved = true;
}

static bool prove_jemalloc(const struct owner *server) {
    static struct owner witness;
    const char *version;
    char seen[128];
    size_t requested;
    uint64_t risen;

    if (!memscope_jemalloc_serves_malloc(memscope_jemalloc_entry(), &requested, &risen))
        return false;
    find_owner((const void *)(uintptr_t)memscope_jemalloc_entry(), &witness);
    snprintf(seen, sizeof seen, "thread.allocated rose by %llu across malloc(%zu)", (unsigned long long)risen,
             requested);
    /* Even if mallctl resolves to another object, malloc's own object may be the jemalloc. */
    set_proof(MEMSCOPE_ALLOCATOR_JEMALLOC, server, server->is_jemalloc ? server : &witness, "mallctl", seen);
    if (memscope_jemalloc_read("version", &version, sizeof version) == MEMSCOPE_OK)
        snprintf(current.version, sizeof current.version, "%s", version);
    return true;
}

static bool prove_mimalloc(const struct owner *server) {
    static struct owner witness;
    void *volatile block;
    bool owned;

    if (!mi_version || !mi_is_in_heap_region)
        return false;
    block = malloc(PROBE_SIZE);
    owned = block && mi_is_in_heap_region(block);
    free(block);
    if (!owned)
        return false;
    find_owner((const void *)(uintptr_t)mi_version, &witness);
    set_proof(MEMSCOPE_ALLOCATOR_MIMALLOC, server, &witness, "mi_version",
              "mi_is_in_heap_region is true of a block that malloc returned");
    memscope_allocator_mimalloc_version(mi_version(), current.version, sizeof current.version);
    return true;
}

static bool tcmalloc_live_bytes(size_t *bytes) {
    if (MallocExtension_GetNumericProperty)
        return MallocExtension_GetNumericProperty(LIVE_BYTES_PROPERTY, bytes) != 0;
    if (MallocExtension_Internal_GetNumericProperty)
        return MallocExtension_Internal_GetNumericProperty(LIVE_BYTES_PROPERTY, strlen(LIVE_BYTES_PROPERTY), bytes);
    return false;
}

static bool prove_tcmalloc(const struct owner *server) {
    static struct owner witness;
    size_t before = 0, after = 0;
    void *volatile block;
    char seen[160];
    bool read;

    if (!tcmalloc_live_bytes(&before))
        return false;
    block = malloc(LARGE_PROBE_SIZE);
    read = tcmalloc_live_bytes(&after);
    free(block);
    /* Other threads allocate and free in between, so the rise may be somewhat less than the block. */
    if (!read || after < before + LARGE_PROBE_SIZE / 2)
        return false;
    find_owner(MallocExtension_GetNumericProperty
                   ? (const void *)(uintptr_t)MallocExtension_GetNumericProperty
                   : (const void *)(uintptr_t)MallocExtension_Internal_GetNumericProperty,
               &witness);
    snprintf(seen, sizeof seen, LIVE_BYTES_PROPERTY " rose by %zu across malloc(%zu)", after - before,
             LARGE_PROBE_SIZE);
    set_proof(MEMSCOPE_ALLOCATOR_TCMALLOC, server, &witness, "MallocExtension", seen);
    if (tc_version)
        memscope_allocator_tcmalloc_version(tc_version, current.version, sizeof current.version);
    return true;
}

/*
 * Returns true if the block has glibc's chunk header: the word before the block holds the chunk's size, and
 * malloc_usable_size is that size less one word (glibc 2.0 to 2.43, malloc/malloc.c). malloc_usable_size comes first,
 * so that the word before a block is not read if there is no header, as under valgrind, which replaces libc's
 * functions.
 */
static bool has_chunk_header(void *block) {
    const size_t flags = 7, alignment = 2 * sizeof(size_t);
    size_t chunk = (PROBE_SIZE + sizeof(size_t) + alignment - 1) & ~(alignment - 1);
    size_t usable = malloc_usable_size(block), header;

    if (usable != chunk - sizeof(size_t) && usable != chunk + alignment - sizeof(size_t))
        return false;
    memcpy(&header, (char *)block - sizeof header, sizeof header);
    return (header & ~flags) == usable + sizeof header;
}

static bool prove_glibc(const struct owner *server) {
    void *volatile block;
    bool proved;

    if (!server->is_glibc || !gnu_get_libc_version)
        return false;
    block = malloc(PROBE_SIZE);
    proved = block && has_chunk_header(block);
    free(block);
    if (!proved)
        return false;
    set_proof(MEMSCOPE_ALLOCATOR_GLIBC, server, server, "gnu_get_libc_version",
              "a block that malloc returned has glibc's chunk header");
    snprintf(current.version, sizeof current.version, "%s", gnu_get_libc_version());
    return true;
}

static bool prove_musl(const struct owner *server) {
    if (!server->is_musl)
        return false;
    memcpy(current.path, server->path, sizeof current.path);
    snprintf(current.proof, sizeof current.proof, "malloc is in %s, which is musl's C library", server->path);
    current.proved = true;
    current.name = MEMSCOPE_ALLOCATOR_MUSL;
    return true;
}

static void say_unknown(const struct owner *server) {
    memcpy(current.path, server->path, sizeof current.path);
    if (server->is_glibc)
        snprintf(current.proof, sizeof current.proof,
                 "malloc is in %s, but a block that it returned does not have glibc's chunk header: something has "
                 "replaced that malloc",
                 server->path);
    else
        snprintf(current.proof, sizeof current.proof,
                 "malloc is in %s, and a block that it returned is not known to jemalloc, mimalloc or tcmalloc",
                 server->found ? server->path : "an object that the dynamic linker does not list");
}

void memscope_allocator_load(void) {
    struct owner server;
    static bool loaded;

    if (loaded)
        return;
    loaded = true;
    memscope_allocator_environment_capture();
    find_owner(resolved_malloc(), &server);
    if (!prove_jemalloc(&server) && !prove_mimalloc(&server) && !prove_tcmalloc(&server) && !prove_glibc(&server) &&
        !prove_musl(&server))
        say_unknown(&server);
}

bool memscope_allocator_live_bytes(uint64_t *bytes) {
    struct memscope_jemalloc_stats stats;
    struct memscope_mallinfo totals;

    if (memscope_jemalloc_read_stats(&stats) == MEMSCOPE_OK &&
        memscope_jemalloc_has(&stats, MEMSCOPE_JEMALLOC_HAS_allocated_bytes)) {
        int64_t in_use = memscope_jemalloc_in_use(&stats);

        *bytes = (uint64_t)in_use;
        return in_use >= 0;
    }
    if (memscope_allocator_current()->name != MEMSCOPE_ALLOCATOR_GLIBC ||
        memscope_mallinfo_read(&totals) != MEMSCOPE_OK)
        return false;
    *bytes = totals.uordblks + totals.hblkhd;
    return true;
}

enum memscope_status memscope_thread_bytes_find(struct memscope_thread_bytes *bytes) {
    enum memscope_status status;

    if (memscope_allocator_current()->name != MEMSCOPE_ALLOCATOR_JEMALLOC)
        return MEMSCOPE_UNSUPPORTED;
    status = memscope_jemalloc_read("thread.allocatedp", &bytes->allocated, sizeof bytes->allocated);
    if (status != MEMSCOPE_OK)
        return status;
    return memscope_jemalloc_read("thread.deallocatedp", &bytes->freed, sizeof bytes->freed);
}
