#include "elf/symbols.h"

#include <string.h>

#if defined(__LP64__) && (defined(__x86_64__) || defined(__aarch64__))

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "elf/elf_reading.h"

#define EXECUTABLE "/proc/self/exe" /* opens the executed file, even if it is deleted or replaced */

/* Has its own copies of the path and program headers, since the linker frees its own when the object is unloaded. */
struct memscope_symbol_object {
    struct memscope_shared_object loaded;
    struct memscope_range extent;        /* of all its segments, with any holes between them */
    struct memscope_functions functions; /* of its .symtab, once read */
    struct memscope_functions exported;  /* of its .dynsym, once read */
    enum memscope_status file;
    bool read;
    bool complete;
};

/* --- The loaded objects */

static bool count_object(const struct memscope_shared_object *object, void *context) {
    size_t *count = context;

    (void)object;
    ++*count;
    return true;
}

static void *copy(struct memscope_scratch *scratch, const void *from, size_t size) {
    void *to = memscope_scratch_take(scratch, size);

    return to == NULL ? NULL : memcpy(to, from, size);
}

static const char *copy_path(struct memscope_scratch *scratch, const char *path, bool executable) {
    char target[PATH_MAX];
    ssize_t length = executable ? readlink(EXECUTABLE, target, sizeof target - 1) : -1;

    if (length < 0)
        return copy(scratch, path, strlen(path) + 1);
    target[length] = '\0';
    return copy(scratch, target, (size_t)length + 1);
}

struct listing {
    struct memscope_symbols *symbols;
    size_t capacity; /* of the list, which leaves out objects loaded since the count */
    bool exhausted;
};

static bool list_object(const struct memscope_shared_object *object, void *context) {
    struct listing *listing = context;
    struct memscope_symbols *symbols = listing->symbols;
    struct memscope_symbol_object *added = &symbols->objects[symbols->count];

    if (symbols->count == listing->capacity)
        return false;
    added->loaded = *object;
    added->loaded.path = copy_path(&symbols->scratch, object->path, symbols->count == 0);
    added->loaded.headers = copy(&symbols->scratch, object->headers, object->header_count * sizeof(ElfW(Phdr)));
    if (added->loaded.path == NULL || added->loaded.headers == NULL) {
        listing->exhausted = true;
        return false;
    }
    added->extent = memscope_shared_object_extent(&added->loaded);
    symbols->count++;
    return true;
}

static enum memscope_status list_objects(struct memscope_symbols *symbols) {
    struct listing listing = {.symbols = symbols};

    memscope_each_shared_object(count_object, &listing.capacity);
    symbols->objects = memscope_scratch_take(&symbols->scratch, listing.capacity * sizeof *symbols->objects);
    if (symbols->objects == NULL)
        return MEMSCOPE_NO_MEMORY;
    memscope_each_shared_object(list_object, &listing);
    return listing.exhausted ? MEMSCOPE_NO_MEMORY : MEMSCOPE_OK;
}

enum memscope_status memscope_symbols_open(struct memscope_symbols *symbols) {
    enum memscope_status status;

    *symbols = (struct memscope_symbols){.memory = {.descriptor = -1}, .debug_directory = MEMSCOPE_DEBUG_DIRECTORY};
    status = memscope_scratch_open(&symbols->scratch);
    if (status != MEMSCOPE_OK)
        return status;
    status = memscope_own_memory_open(&symbols->memory);
    if (status == MEMSCOPE_OK)
        status = list_objects(symbols);
    if (status != MEMSCOPE_OK)
        memscope_symbols_close(symbols);
    return status;
}

void memscope_symbols_close(struct memscope_symbols *symbols) {
    if (symbols->scratch.base == NULL)
        return;
    memscope_own_memory_close(&symbols->memory);
    memscope_scratch_close(&symbols->scratch);
    symbols->objects = NULL;
    symbols->count = 0;
}

/* --- Symbols of the loaded objects */

static bool read_memory(const void *context, uint64_t position, void *into, size_t size) {
    return memscope_own_memory_read(context, position, into, size);
}

static bool read_descriptor(const void *context, uint64_t position, void *into, size_t size) {
    const int *descriptor = context;
    size_t done = 0;

    while (done < size) {
        ssize_t count = pread(*descriptor, (char *)into + done, size - done, (off_t)(position + done));

        if (count == 0 || (count < 0 && errno != EINTR))
            return false;
        if (count > 0)
            done += (size_t)count;
    }
    return true;
}

/* The caller closes *descriptor, which is -1 unless the status is MEMSCOPE_OK. Never waits for a pipe's other end. */
static enum memscope_status open_file(const char *path, int *descriptor) {
    struct stat status;

    *descriptor = memscope_descriptor_open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (*descriptor < 0)
        return memscope_status_of_errno(errno);
    if (fstat(*descriptor, &status) == 0 && S_ISREG(status.st_mode))
        return MEMSCOPE_OK;
    memscope_descriptor_close(*descriptor);
    *descriptor = -1;
    return MEMSCOPE_NOT_FOUND;
}

static bool same_build_id(const struct memscope_elf_file *file, const struct memscope_build_id *wanted) {
    struct memscope_build_id build_id;

    (void)memscope_elf_file_build_id(file, &build_id);
    return wanted->size == build_id.size && memcmp(wanted->bytes, build_id.bytes, wanted->size) == 0;
}

/*
 * Reads the headers of a file. Returns MEMSCOPE_NOT_FOUND unless it is the object's file, or the object's separate
 * debug file.
 */
static enum memscope_status read_file(struct memscope_symbols *symbols, const struct memscope_symbol_object *object,
                                      const struct memscope_build_id *build_id, const int *descriptor,
                                      struct memscope_elf_file *file) {
    const struct memscope_elf_source source = {read_descriptor, descriptor};
    enum memscope_status status = memscope_elf_read_file(&source, &symbols->scratch, file);

    if (status != MEMSCOPE_OK)
        return status;
    if (same_build_id(file, build_id) && memscope_elf_same_layout(file, &object->loaded, build_id->size > 0))
        return MEMSCOPE_OK;
    *file = (struct memscope_elf_file){.source = source};
    return MEMSCOPE_NOT_FOUND;
}

static void read_debug_file(struct memscope_symbols *symbols, struct memscope_symbol_object *object,
                            const struct memscope_build_id *build_id) {
    char path[PATH_MAX], digits[2 * sizeof build_id->bytes + 1];
    struct memscope_elf_file file;
    int descriptor, length;

    if (build_id->size < 2)
        return;
    for (size_t index = 0; index < build_id->size; index++)
        snprintf(digits + 2 * index, 3, "%02x", build_id->bytes[index]);
    length = snprintf(path, sizeof path, "%s/.build-id/%.2s/%s.debug", symbols->debug_directory, digits, digits + 2);
    if (length < 0 || (size_t)length >= sizeof path || open_file(path, &descriptor) != MEMSCOPE_OK)
        return;
    if (read_file(symbols, object, build_id, &descriptor, &file) == MEMSCOPE_OK)
        object->complete =
            memscope_elf_file_functions(&file, &object->loaded, &symbols->scratch, &object->functions) == MEMSCOPE_OK;
    memscope_descriptor_close(descriptor);
}

static void read_symbols(struct memscope_symbols *symbols, struct memscope_symbol_object *object) {
    const struct memscope_elf_source image = {read_memory, &symbols->memory};
    const char *path = object == symbols->objects ? EXECUTABLE : object->loaded.path;
    struct memscope_elf_file file = {.headers = NULL};
    struct memscope_build_id build_id;
    enum memscope_status status;
    int descriptor = -1;

    (void)memscope_elf_image_build_id(&image, &object->loaded, &build_id);
    /* A name without a slash is not a path but the vDSO's. */
    object->file = strchr(path, '/') == NULL ? MEMSCOPE_NOT_FOUND : open_file(path, &descriptor);
    if (object->file == MEMSCOPE_OK)
        object->file = read_file(symbols, object, &build_id, &descriptor, &file);
    if (object->file == MEMSCOPE_OK) {
        status = memscope_elf_file_functions(&file, &object->loaded, &symbols->scratch, &object->functions);
        object->complete = status == MEMSCOPE_OK;
        if (!object->complete && status != MEMSCOPE_NOT_FOUND)
            object->file = status;
    }
    if (descriptor >= 0)
        memscope_descriptor_close(descriptor);
    if (!object->complete)
        read_debug_file(symbols, object, &build_id);
    (void)memscope_elf_image_functions(&image, &file, &object->loaded, &symbols->scratch, &object->exported);
    object->read = true;
}

/* --- Addresses */

static struct memscope_symbol_object *object_of(const struct memscope_symbols *symbols, uintptr_t address) {
    for (size_t index = 0; index < symbols->count; index++) {
        struct memscope_symbol_object *object = &symbols->objects[index];

        if (memscope_range_contains(object->extent, address) &&
            memscope_shared_object_contains(&object->loaded, address))
            return object;
    }
    return NULL;
}

enum memscope_status memscope_symbols_find(struct memscope_symbols *symbols, uintptr_t address,
                                           struct memscope_symbol *found) {
    struct memscope_symbol_object *object = object_of(symbols, address);
    const struct memscope_function *function;

    *found = (struct memscope_symbol){0};
    if (object == NULL)
        return MEMSCOPE_NOT_FOUND;
    if (!object->read)
        read_symbols(symbols, object);
    function = memscope_functions_find(&object->functions, address);
    if (function == NULL)
        function = memscope_functions_find(&object->exported, address);
    *found = (struct memscope_symbol){
        .name = function == NULL ? NULL : function->name,
        .offset = address - (function == NULL ? object->loaded.load_bias : function->start),
        .object = object->loaded.path,
        .complete = object->complete,
        .file = object->file,
    };
    return MEMSCOPE_OK;
}

#else

enum memscope_status memscope_symbols_open(struct memscope_symbols *symbols) {
    memset(symbols, 0, sizeof *symbols);
    return MEMSCOPE_UNSUPPORTED;
}

void memscope_symbols_close(struct memscope_symbols *symbols) {
    (void)symbols;
}

enum memscope_status memscope_symbols_find(struct memscope_symbols *symbols, uintptr_t address,
                                           struct memscope_symbol *found) {
    (void)symbols, (void)address;
    memset(found, 0, sizeof *found);
    return MEMSCOPE_UNSUPPORTED;
}

#endif
