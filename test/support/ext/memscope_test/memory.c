/* Memory of each kind that is not Ruby's and not a stack. */
#include "memscope_test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Every block begins with a pointer to the block made before it, so keeping track of them takes no extra memory. */
struct block {
    struct block *previous;
};

static struct block *newest_block;

static int option(VALUE options, const char *name, int given_nothing) {
    if (NIL_P(options))
        return given_nothing;
    return RTEST(rb_hash_lookup2(options, ID2SYM(rb_intern(name)), given_nothing ? Qtrue : Qfalse));
}

static size_t block_size(VALUE value) {
    size_t size = NUM2SIZET(value);

    if (size < sizeof(struct block))
        rb_raise(rb_eArgError, "a block holds a pointer: size must be at least %zu", sizeof(struct block));
    return size;
}

static size_t malloc_block(size_t size, int touch) {
    struct block *block = malloc(size);

    if (!block)
        rb_sys_fail("malloc");
    if (touch)
        memset(block, 0x5a, size);
    block->previous = newest_block;
    newest_block = block;
    return malloc_usable_size(block);
}

/*
 * Host.malloc_blocks(size, count, touch: true) -> Integer: allocates `count` blocks; returns the sum of their
 * malloc_usable_size. If `size` is an Array, allocates `count` blocks of each size, in turn.
 */
static VALUE host_malloc_blocks(int argc, VALUE *argv, VALUE self) {
    VALUE sizes, count_value, options;
    size_t count, usable = 0;
    int touch;

    rb_scan_args(argc, argv, "2:", &sizes, &count_value, &options);
    sizes = rb_Array(sizes);
    count = NUM2SIZET(count_value);
    touch = option(options, "touch", 1);
    while (count-- > 0)
        for (long index = 0; index < RARRAY_LEN(sizes); index++)
            usable += malloc_block(block_size(rb_ary_entry(sizes, index)), touch);
    RB_GC_GUARD(sizes);
    return SIZET2NUM(usable);
}

/*
 * Host.mallctl(key, bytes) -> Integer: the current value of a key whose number is this many bytes wide; nil if there is
 * no jemalloc or no such key.
 */
static VALUE host_mallctl(VALUE self, VALUE key, VALUE bytes) {
    int (*mallctl)(const char *, void *, size_t *, void *, size_t) =
        (int (*)(const char *, void *, size_t *, void *, size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "mallctl");
    uint64_t epoch = 1, value = 0;
    size_t size = NUM2SIZET(bytes);

    if (!mallctl || mallctl("epoch", NULL, NULL, &epoch, sizeof epoch) != 0 ||
        mallctl(StringValueCStr(key), &value, &size, NULL, 0) != 0)
        return Qnil;
    return ULL2NUM(value);
}

/* Host.malloc_trim -> true or false: calls glibc's malloc_trim(0). */
static VALUE host_malloc_trim(VALUE self) {
    return malloc_trim(0) ? Qtrue : Qfalse;
}

/* How many bytes of this page are blocks or their headers (malloc/malloc.c: the size is in the word before a block). */
static size_t bytes_of_blocks(uintptr_t page, size_t page_bytes) {
    size_t bytes = 0;

    for (struct block *block = newest_block; block; block = block->previous) {
        uintptr_t start = (uintptr_t)block - sizeof(size_t), end = (uintptr_t)block + malloc_usable_size(block);

        start = start > page ? start : page;
        end = end < page + page_bytes ? end : page + page_bytes;
        bytes += start < end ? end - start : 0;
    }
    return bytes;
}

/* Host.hide_blocks -> nil: makes a page unreadable that holds nothing but malloc_blocks' small blocks. */
static VALUE host_hide_blocks(VALUE self) {
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);

    for (struct block *block = newest_block; block; block = block->previous) {
        uintptr_t page = (uintptr_t)block & -page_bytes;

        if (bytes_of_blocks(page, page_bytes) < page_bytes)
            continue;
        if (mprotect((void *)page, page_bytes, PROT_NONE) != 0)
            rb_sys_fail("mprotect");
        return Qnil;
    }
    rb_raise(rb_eRuntimeError, "no page holds nothing but blocks");
}

static size_t count_option(VALUE options, const char *name, size_t given_nothing) {
    VALUE value = NIL_P(options) ? Qnil : rb_hash_lookup(options, ID2SYM(rb_intern(name)));

    return NIL_P(value) ? given_nothing : NUM2SIZET(value);
}

/*
 * Host.free_blocks(count: nil, keep: nil) -> Integer: frees the newest `count` blocks of malloc_blocks, by default all;
 * with keep, spares the first of them and every `keep`th after it. Returns the sum of the freed blocks'
 * malloc_usable_size.
 */
static VALUE host_free_blocks(int argc, VALUE *argv, VALUE self) {
    struct block *kept = NULL, **last_kept = &kept;
    size_t freed = 0, keep, count;
    VALUE options;

    rb_scan_args(argc, argv, "0:", &options);
    keep = count_option(options, "keep", SIZE_MAX);
    count = count_option(options, "count", SIZE_MAX);
    for (size_t index = 0; newest_block && index < count; index++) {
        struct block *block = newest_block;

        newest_block = block->previous;
        if (keep < SIZE_MAX && index % keep == 0) {
            *last_kept = block;
            last_kept = &block->previous;
        } else {
            freed += malloc_usable_size(block);
            free(block);
        }
    }
    *last_kept = newest_block;
    newest_block = kept;
    return SIZET2NUM(freed);
}

static void touch_pages(volatile char *start, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += page_size)
        start[offset] = 1;
}

/*
 * Maps this many bytes between two inaccessible pages, so that the kernel cannot merge the mapping with a neighbour,
 * and /proc/self/maps lists it with exactly these bounds.
 */
static char *map_apart(size_t bytes, int protection, int flags, int descriptor) {
    char *start = mmap(NULL, bytes + 2 * page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (start == MAP_FAILED)
        rb_sys_fail("mmap");
    start = mmap(start + page_size, bytes, protection, flags | MAP_FIXED, descriptor, 0);
    if (start == MAP_FAILED)
        rb_sys_fail("mmap");
    return start;
}

/* Host.mmap_anonymous(bytes, noreserve: false, touch: true, executable: false) -> Integer: its address. */
static VALUE host_mmap_anonymous(int argc, VALUE *argv, VALUE self) {
    VALUE bytes_value, options;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *start;

    rb_scan_args(argc, argv, "1:", &bytes_value, &options);
    if (option(options, "noreserve", 0))
        flags |= MAP_NORESERVE;
    start = map_apart(NUM2SIZET(bytes_value), PROT_READ | PROT_WRITE, flags, -1);
    if (option(options, "touch", 1))
        touch_pages(start, NUM2SIZET(bytes_value));
    if (option(options, "executable", 0) && mprotect(start, NUM2SIZET(bytes_value), PROT_READ | PROT_EXEC) != 0)
        rb_sys_fail("mprotect");
    return ULL2NUM((uintptr_t)start);
}

/* Host.reserve(bytes) -> nil: address space that nothing may touch, as databases and virtual machines reserve it. */
static VALUE host_reserve(VALUE self, VALUE bytes) {
    (void)map_apart(NUM2SIZET(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    return Qnil;
}

/* Host.read_zero_pages(bytes) -> nil: reads memory that was never written, which maps the kernel's zero page. */
static VALUE host_read_zero_pages(VALUE self, VALUE bytes) {
    const volatile char *start = map_apart(NUM2SIZET(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

    for (size_t offset = 0; offset < NUM2SIZET(bytes); offset += page_size)
        (void)start[offset];
    return Qnil;
}

/* Host.mmap_file(path) -> [address, bytes]: the whole file, private and read-only, every page read. */
static VALUE host_mmap_file(VALUE self, VALUE path) {
    int descriptor = open(StringValueCStr(path), O_RDONLY | O_CLOEXEC);
    volatile unsigned seen = 0;
    struct stat status;
    char *start;

    if (descriptor < 0 || fstat(descriptor, &status) != 0)
        rb_sys_fail_str(path);
    start = map_apart((size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor);
    close(descriptor);
    for (size_t offset = 0; offset < (size_t)status.st_size; offset += page_size)
        seen += (unsigned char)start[offset];
    return rb_assoc_new(ULL2NUM((uintptr_t)start), SIZET2NUM((size_t)status.st_size));
}

static int shared_descriptor(VALUE kind) {
    int descriptor;

    if (kind == ID2SYM(rb_intern("memfd")))
        return memfd_create("memscope_test", MFD_CLOEXEC);
    if (kind != ID2SYM(rb_intern("shm_open")))
        rb_raise(rb_eArgError, "kind must be :anonymous, :memfd or :shm_open");
    descriptor = shm_open("/memscope_test", O_CREAT | O_RDWR, 0600);
    shm_unlink("/memscope_test");
    return descriptor;
}

/* Host.shared_memory(kind, bytes) -> Integer: the address; kind is :anonymous, :memfd or :shm_open. Touched. */
static VALUE host_shared_memory(VALUE self, VALUE kind, VALUE bytes_value) {
    size_t bytes = NUM2SIZET(bytes_value);
    char *start;

    if (kind == ID2SYM(rb_intern("anonymous"))) {
        start = map_apart(bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    } else {
        int descriptor = shared_descriptor(kind);

        if (descriptor < 0 || ftruncate(descriptor, (off_t)bytes) != 0)
            rb_sys_fail("shared memory");
        start = map_apart(bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor);
        close(descriptor);
    }
    touch_pages(start, bytes);
    return ULL2NUM((uintptr_t)start);
}

/* Host.unmap(address, bytes) -> nil: unmaps any of the mappings above. */
static VALUE host_unmap(VALUE self, VALUE address, VALUE bytes) {
    char *start = (char *)(uintptr_t)NUM2ULL(address);

    if (munmap(start - page_size, NUM2SIZET(bytes) + 2 * page_size) != 0)
        rb_sys_fail("munmap");
    return Qnil;
}

static size_t nameless_size(const void *bytes) {
    return *(const size_t *)bytes;
}

/* Fields that are not set are NULL, even the name: legal, if unusual. */
static const rb_data_type_t nameless = {.function = {.dfree = RUBY_DEFAULT_FREE, .dsize = nameless_size}};

/* Host.nameless(bytes) -> an object that reports this many bytes, and whose type has no name. */
static VALUE host_nameless(VALUE self, VALUE bytes) {
    size_t *size;
    VALUE object = TypedData_Make_Struct(rb_cObject, size_t, &nameless, size);

    *size = NUM2SIZET(bytes);
    return object;
}

/* An object whose size function takes a while. slow_calls counts the calls of that function. */
struct slow {
    size_t bytes, nanoseconds;
};
static size_t slow_calls;

static uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static size_t slow_size(const void *data) {
    const struct slow *slow = data;
    uint64_t end = slow->nanoseconds > 0 ? now_ns() + slow->nanoseconds : 0;

    slow_calls++;
    while (end > 0 && now_ns() < end)
        ;
    if (slow->bytes == SIZE_MAX)
        rb_raise(rb_eRuntimeError, "a broken size function");
    return sizeof *slow + slow->bytes;
}

/* A function of its own: nobody knows what else it may free. */
static void free_slow(void *data) {
    xfree(data);
}

static const rb_data_type_t slow_type = {.wrap_struct_name = "Host::Slow",
                                         .function = {.dfree = free_slow, .dsize = slow_size}};
static const rb_data_type_t quick_type = {.wrap_struct_name = "Host::Quick",
                                          .function = {.dfree = free_slow, .dsize = slow_size}};

/*
 * Host.sized(bytes, nanoseconds) -> an object that reports this many bytes, and whose size function takes this many
 * nanoseconds. It raises for the largest size_t. Its type is Host::Slow, or Host::Quick if nanoseconds is 0.
 */
static VALUE host_sized(VALUE self, VALUE bytes, VALUE nanoseconds) {
    const rb_data_type_t *type = NUM2SIZET(nanoseconds) > 0 ? &slow_type : &quick_type;
    struct slow *slow;
    VALUE object = TypedData_Make_Struct(rb_cObject, struct slow, type, slow);

    *slow = (struct slow){NUM2SIZET(bytes), NUM2SIZET(nanoseconds)};
    return object;
}

/* Host.size_calls -> Integer: how often a size function of Host.sized was called. */
static VALUE host_size_calls(VALUE self) {
    return SIZET2NUM(slow_calls);
}

/* Marks values that are not objects, as many extensions do with unset fields, and one object several times. */
static void mark_anything(void *data) {
    const VALUE *object = data;
    const VALUE words[] = {0, 0x10, *object + 1, (VALUE)data, UINTPTR_MAX, Qtrue, *object};
    const VALUE constants[] = {Qnil, Qtrue, Qfalse, Qundef, INT2FIX(-1), ID2SYM(rb_intern("each")), DBL2NUM(1.5)};

    for (size_t index = 0; index < sizeof constants / sizeof constants[0]; index++) {
        rb_gc_mark(constants[index]);
        rb_gc_mark_movable(constants[index]);
        rb_gc_mark_maybe(constants[index]);
    }
    rb_gc_mark_locations(words, words + sizeof words / sizeof words[0]);
    rb_gc_mark(*object);
    rb_gc_mark(*object);
}

static const rb_data_type_t marks_anything = {
    .wrap_struct_name = "Host::MarksAnything",
    .function = {.dmark = mark_anything, .dfree = RUBY_DEFAULT_FREE},
};

/* Host.marks_anything(object) -> an object that marks this one, and much that is no object. */
static VALUE host_marks_anything(VALUE self, VALUE object) {
    VALUE *held, marks = TypedData_Make_Struct(rb_cObject, VALUE, &marks_anything, held);

    *held = object;
    return marks;
}

void init_memory(VALUE host) {
    rb_define_singleton_method(host, "marks_anything", host_marks_anything, 1);
    rb_define_singleton_method(host, "malloc_blocks", host_malloc_blocks, -1);
    rb_define_singleton_method(host, "sized", host_sized, 2);
    rb_define_singleton_method(host, "size_calls", host_size_calls, 0);
    rb_define_singleton_method(host, "nameless", host_nameless, 1);
    rb_define_singleton_method(host, "malloc_trim", host_malloc_trim, 0);
    rb_define_singleton_method(host, "hide_blocks", host_hide_blocks, 0);
    rb_define_singleton_method(host, "mallctl", host_mallctl, 2);
    rb_define_singleton_method(host, "free_blocks", host_free_blocks, -1);
    rb_define_singleton_method(host, "mmap_anonymous", host_mmap_anonymous, -1);
    rb_define_singleton_method(host, "reserve", host_reserve, 1);
    rb_define_singleton_method(host, "read_zero_pages", host_read_zero_pages, 1);
    rb_define_singleton_method(host, "mmap_file", host_mmap_file, 1);
    rb_define_singleton_method(host, "shared_memory", host_shared_memory, 2);
    rb_define_singleton_method(host, "unmap", host_unmap, 2);
}
