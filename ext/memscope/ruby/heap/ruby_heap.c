#include "values.h"

#include "base/copy.h"
#include "base/own_memory.h"
#include "ruby/heap/ruby_heap.h"
#include "ruby/ractors.h"
#include "ruby/ruby_private.h"

#include <string.h>
#include <time.h>

#define SAMPLE_PAGES 64
#define MAX_ALLOCATING_PAGES (SAMPLE_PAGES / 4)
#define AHEAD ((size_t)8)

static size_t heap_page_bytes;
static size_t fiber_stack_bytes, thread_vm_bytes, thread_machine_bytes;
static VALUE symbol_allocated_objects, symbol_moved_objects, symbol_allocated_pages, symbol_allocatable_pages,
    symbol_empty_pages, symbol_live_slots, symbol_free_slots, symbol_state, symbol_none, symbol_sweeping;

/* ---- listing -------------------------------------------------------------------------------------------------- */

/* T_NONE is a slot on a free list. A zombie or a forwarding address still occupies its slot. */
static bool is_live(uintptr_t slot) {
    return (((const struct RBasic *)slot)->flags & RUBY_T_MASK) != RUBY_T_NONE;
}

static uint32_t walk_slots(const struct memscope_heap_page *page) {
    uintptr_t slot = page->start + page->slots_offset;
    uint32_t live = 0;

    for (uint32_t index = 0; index < page->slot_count; index++, slot += page->slot_bytes)
        live += is_live(slot);
    return live;
}

static const struct memscope_heap_page_header *header_of(const struct memscope_heap_page *page) {
    return memscope_header_of_page(page->start);
}

/*
 * each_objects calls back once per page. A modular GC without pages would call back once per object, with one slot
 * between start and end. Must not allocate objects or raise.
 */
static int list_page(void *start, void *end, size_t stride, void *data) {
    struct memscope_heap_listing *listing = data;
    struct memscope_heap_page *page;
    uintptr_t first = (uintptr_t)start, size = (uintptr_t)end - first;

    if (size <= stride || stride == 0) {
        listing->refusal = "heap_pages_absent";
        return 1;
    }
    page = memscope_scratch_extend(&listing->scratch, sizeof *page);
    if (page == NULL) {
        listing->refusal = "no_memory";
        return 1;
    }
    page->start = first / heap_page_bytes * heap_page_bytes;
    page->slots_offset = (uint32_t)(first - page->start);
    page->slot_bytes = (uint32_t)stride;
    page->slot_count = (uint32_t)(size / stride);
    page->live_count = 0;
    listing->count++;
    listing->slots += page->slot_count;
    return 0;
}

/*
 * Returns NULL, or the reason why the callback was never called. With other Ractors alive, the walk needs the VM lock,
 * which some Rubies do not export.
 */
static const char *walk_pages(void (*walk)(memscope_page_callback *callback, void *data),
                              memscope_page_callback *callback, void *data) {
    unsigned int level;

    if (!MEMSCOPE_LISTS_PAGES)
        return "heap_walk_unexported";
    if (!memscope_other_ractors()) {
        walk(callback, data);
        return NULL;
    }
    if (!MEMSCOPE_LOCKS_VM)
        return "heap_pages_unlocked";
    rb_vm_lock_enter_body(&level);
    walk(callback, data);
    rb_vm_lock_leave_body(&level);
    return NULL;
}

/*
 * Returns true if the page headers agree with the slots on a sample of pages. A header counts no slot as free while
 * Ruby allocates from the page. Up to MAX_ALLOCATING_PAGES such pages are accepted with any number of live slots. In a
 * Ruby with another layout, the address of a header may be any word: it is not dereferenced.
 */
static bool sample_agrees(const struct memscope_heap_listing *listing, const struct memscope_own_memory *memory) {
    size_t step = listing->count / SAMPLE_PAGES + 1, being_allocated = 0;

    for (size_t index = 0; index < listing->count; index += step) {
        const struct memscope_heap_page *page = &listing->pages[index];
        struct memscope_heap_page_header header;
        uint32_t live = walk_slots(page);

        if (!memscope_own_memory_read(memory, (uintptr_t)header_of(page), &header, sizeof header) ||
            header.total_slots != page->slot_count || header.free_slots > header.total_slots)
            return false;
        if (page->slot_count - header.free_slots == live)
            continue;
        if (header.free_slots != 0 || ++being_allocated > MAX_ALLOCATING_PAGES)
            return false;
    }
    return true;
}

static bool headers_are_right(const struct memscope_heap_listing *listing) {
    struct memscope_own_memory memory;
    bool right = memscope_own_memory_open(&memory) == MEMSCOPE_OK && sample_agrees(listing, &memory);

    memscope_own_memory_close(&memory);
    return right;
}

/* Neither a page nor its header, which lies elsewhere, is in a CPU cache: both are prefetched. */
static void fetch_ahead(const struct memscope_heap_listing *listing, size_t index) {
    if (index + 2 * AHEAD < listing->count)
        __builtin_prefetch((const void *)listing->pages[index + 2 * AHEAD].start);
    if (index + AHEAD < listing->count)
        __builtin_prefetch(header_of(&listing->pages[index + AHEAD]));
}

/*
 * Returns false unless a page with free slots proves that headers count them: a field that is always 0 agrees with all
 * full pages. Without such a page, Ruby must have no more free slots than the pages from which it allocates may have.
 */
static bool count_by_headers(struct memscope_heap_listing *listing) {
    bool proved = memscope_gc_figure(symbol_free_slots) <= MAX_ALLOCATING_PAGES * listing->slots / listing->count;

    for (size_t index = 0; index < listing->count; index++) {
        struct memscope_heap_page *page = &listing->pages[index];
        unsigned short free_slots;

        fetch_ahead(listing, index);
        free_slots = header_of(page)->free_slots;
        page->live_count = page->slot_count - free_slots;
        if (!proved && free_slots != 0 && page->live_count != walk_slots(page))
            return false;
        proved = proved || free_slots != 0;
    }
    return proved;
}

static void count_slots(struct memscope_heap_listing *listing) {
    if (listing->count == 0 || (headers_are_right(listing) && count_by_headers(listing)))
        return;
    for (size_t index = 0; index < listing->count; index++)
        listing->pages[index].live_count = walk_slots(&listing->pages[index]);
}

uint64_t memscope_heap_slots(void) {
    return memscope_gc_figure(symbol_live_slots) + memscope_gc_figure(symbol_free_slots);
}

uint64_t memscope_objects_allocated(void) {
    return memscope_gc_figure(symbol_allocated_objects) - memscope_gc_figure(symbol_moved_objects);
}

bool memscope_counts_empty_pages(void) {
    return symbol_empty_pages != Qnil;
}

void memscope_heap_list(struct memscope_heap_listing *listing, enum memscope_slot_counts wanted) {
    const char *refusal;

    memset(listing, 0, sizeof *listing);
    if (memscope_scratch_open(&listing->scratch) != MEMSCOPE_OK) {
        listing->refusal = "no_memory";
        return;
    }
    if (heap_page_bytes == 0) {
        listing->refusal = "heap_pages_absent";
        return;
    }
    listing->pages = memscope_scratch_take(&listing->scratch, 0);
    listing->finished_gc = MEMSCOPE_LISTING_FINISHES_GC && rb_gc_latest_gc_info(symbol_state) != symbol_none;
    listing->unswept = !MEMSCOPE_LISTING_FINISHES_GC && rb_gc_latest_gc_info(symbol_state) == symbol_sweeping;
    refusal = walk_pages(rb_objspace_each_objects_without_setup, list_page, listing);
    if (refusal != NULL)
        listing->refusal = refusal;
    if (listing->refusal != NULL) {
        listing->count = 0;
        listing->slots = 0;
        return;
    }
    listing->page_bytes = heap_page_bytes;
    listing->allocated_pages = memscope_gc_figure(symbol_allocated_pages);
    listing->allocatable_pages = memscope_gc_figure(symbol_allocatable_pages);
    listing->empty_pages = memscope_gc_figure(symbol_empty_pages);
    if (wanted == MEMSCOPE_SLOTS_COUNTED)
        count_slots(listing);
}

static int leave_the_walk(void *start, void *end, size_t stride, void *data) {
    return 1;
}

/*
 * rb_gc_disable finishes a collection (gc.c, gc_rest). A walk of the object space also finishes it, but reads the
 * headers of all pages. The walk is used only while other Ractors are alive, because it takes the VM lock.
 */
bool memscope_heap_finish_gc(void) {
    bool other_ractors = memscope_other_ractors(); /* first: it may switch to a thread that begins a collection */

    if (rb_gc_latest_gc_info(symbol_state) == symbol_none)
        return false;
    if (other_ractors)
        return walk_pages(rb_objspace_each_objects, leave_the_walk, NULL) == NULL;
    if (!RTEST(rb_gc_disable()))
        rb_gc_enable();
    return rb_gc_latest_gc_info(symbol_state) == symbol_none;
}

/*
 * Ruby has no function that reads the state. rb_gc_enable returns it and, unlike rb_gc_disable, finishes no collection.
 * Nothing is allocated between the two calls, so no collection begins in this Ractor.
 */
bool memscope_heap_gc_is_disabled(void) {
    bool disabled = RTEST(rb_gc_enable());

    if (disabled)
        rb_gc_disable();
    return disabled;
}

/* Unlike GC.start, rb_gc switches to no other thread. It does nothing while the GC is disabled. */
static void collect_undisturbed(void) {
    bool was_disabled = RTEST(rb_gc_enable());

    rb_gc();
    if (was_disabled)
        rb_gc_disable();
}

/*
 * For a copy, where no finalizer may run: those of Tempfile would remove its original's files. GC.start and, since 3.4,
 * rb_gc run finalizers. Under GC.stress, an allocation collects all garbage, and leaves finalizers to an interrupt.
 */
static void collect_by_allocating(void) {
    VALUE stress = rb_funcall(rb_mGC, rb_intern("stress"), 0);
    bool was_disabled = RTEST(rb_gc_enable());

    rb_funcall(rb_mGC, rb_intern("stress="), 1, INT2FIX(0));
    rb_obj_alloc(rb_cObject);
    rb_funcall(rb_mGC, rb_intern("stress="), 1, stress);
    if (was_disabled)
        rb_gc_disable();
}

/* Only GC.start runs finalizers, but at its end it may switch to other threads, which leave new garbage. */
void memscope_heap_collect(void) {
    size_t allocated = memscope_gc_figure(symbol_allocated_objects);

    if (memscope_is_copy()) {
        collect_by_allocating();
        memscope_heap_finish_gc();
        return;
    }
    rb_funcall(rb_path2class("GC"), rb_intern("start"), 0);
    memscope_other_ractors(); /* now: it may switch threads, too */
    if (memscope_gc_figure(symbol_allocated_objects) - allocated > MEMSCOPE_FEW_OBJECTS)
        collect_undisturbed();
    memscope_heap_finish_gc();
}

/* ---- a collection under way ------------------------------------------------------------------------------------ */

#define MAX_WAIT_NS UINT64_C(2000000000)
#define STEP_NS 5000000
/* After this many steps without any allocation, no other thread is advancing the collection. */
#define IDLE_STEPS 4

static void rest(void *argument) {
    const struct timespec step = {.tv_nsec = STEP_NS};

    nanosleep(&step, NULL);
}

uint64_t memscope_heap_await_gc(void) {
    uint64_t start = memscope_now_ns();
    size_t allocated = memscope_gc_figure(symbol_allocated_objects);

    if (memscope_is_copy())
        return 0;
    for (int idle = 0; idle < IDLE_STEPS && rb_gc_latest_gc_info(symbol_state) != symbol_none;) {
        size_t before = allocated;

        if (memscope_now_ns() - start > MAX_WAIT_NS)
            break;
        memscope_without_gvl(rest, NULL);
        allocated = memscope_gc_figure(symbol_allocated_objects);
        idle = allocated == before ? idle + 1 : 0;
    }
    return memscope_now_ns() - start;
}

void memscope_heap_listing_close(struct memscope_heap_listing *listing) {
    memscope_scratch_close(&listing->scratch);
}

/* ---- layout --------------------------------------------------------------------------------------------------- */

bool memscope_jit_is_on(void) {
    static const char *const names[] = {"YJIT", "ZJIT", "RJIT"};
    VALUE vm = rb_const_get(rb_cObject, rb_intern("RubyVM"));

    for (size_t index = 0; index < sizeof names / sizeof names[0]; index++) {
        ID name = rb_intern(names[index]);

        if (rb_const_defined(vm, name) && RTEST(rb_check_funcall(rb_const_get(vm, name), rb_intern("enabled?"), 0, 0)))
            return true;
    }
    return false;
}

static uintptr_t shape_list(void) {
#if defined(HAVE_RB_SHAPE_GET_SHAPE_BY_ID)
    return (uintptr_t)rb_shape_get_shape_by_id(0);
#elif defined(HAVE_RB_SHAPE_TREE)
    return (uintptr_t)rb_shape_tree;
#else
    return 0;
#endif
}

static void set_landmarks(struct memscope_ruby_layout *layout) {
    const VALUE objects[MEMSCOPE_LANDMARKS] = {rb_cObject, rb_cModule,    rb_cString,     rb_cInteger,
                                               rb_cThread, rb_eException, rb_mComparable, rb_mKernel};

    for (size_t index = 0; heap_page_bytes > 0 && index < MEMSCOPE_LANDMARKS; index++)
        layout->landmarks[index] = objects[index] / heap_page_bytes * heap_page_bytes;
}

void memscope_ruby_layout(const struct memscope_heap_listing *listing, bool jit, struct memscope_ruby_layout *layout) {
    *layout = (struct memscope_ruby_layout){
        .heap_pages = listing->pages,
        .heap_page_count = listing->count,
        .heap_page_bytes = heap_page_bytes,
        .empty_page_count = listing->empty_pages,
        .allocated_page_count =
            listing->count > 0 ? listing->allocated_pages : memscope_gc_figure(symbol_allocated_pages),
        .fiber_stack_bytes = fiber_stack_bytes,
        .thread_vm_bytes = thread_vm_bytes,
        .thread_machine_bytes = thread_machine_bytes,
        .transient_heap_bytes = MEMSCOPE_TRANSIENT_HEAP_BYTES,
        .transient_block_bytes = MEMSCOPE_TRANSIENT_BLOCK_BYTES,
        .shape_list = shape_list(),
        .shape_list_bytes = MEMSCOPE_SHAPE_LIST_BYTES,
        .shape_cache_bytes = MEMSCOPE_SHAPE_CACHE_BYTES,
        .jit = jit,
    };
    set_landmarks(layout);
}

/* ---- constants of this Ruby ----------------------------------------------------------------------------------- */

/*
 * cont.c, fiber_pool_initialize: the sum of the VM stack and the machine stack, rounded up to the next multiple of the
 * page size, even if it is already a multiple.
 */
static size_t pooled_fiber_bytes(VALUE parameters) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t wanted = memscope_hash_get_size(parameters, "fiber_vm_stack_size") +
                    memscope_hash_get_size(parameters, "fiber_machine_stack_size");

    return wanted == 0 ? 0 : (wanted / page + 1) * page;
}

void memscope_ruby_heap_learn(void) {
    VALUE vm = rb_const_get(rb_cObject, rb_intern("RubyVM"));
    VALUE stat = rb_hash_new(), parameters;

    rb_gc_stat(stat);
    symbol_allocated_objects = memscope_gc_symbol(stat, "total_allocated_objects");
    symbol_moved_objects = MEMSCOPE_MOVES_COUNT_AS_ALLOCATIONS ? memscope_gc_symbol(stat, "total_moved_objects") : Qnil;
    symbol_allocated_pages = memscope_gc_symbol(stat, "heap_allocated_pages");
    symbol_allocatable_pages = memscope_gc_symbol(stat, "heap_allocatable_pages");
    symbol_empty_pages = memscope_gc_symbol(stat, "heap_empty_pages"); /* 3.4 and newer */
    if (NIL_P(symbol_empty_pages))
        symbol_empty_pages = memscope_gc_symbol(stat, "heap_tomb_pages");
    symbol_live_slots = memscope_gc_symbol(stat, "heap_live_slots");
    symbol_free_slots = memscope_gc_symbol(stat, "heap_free_slots");
    symbol_state = memscope_symbol("state");
    symbol_none = memscope_symbol("none");
    symbol_sweeping = memscope_symbol("sweeping");
    rb_gc_latest_gc_info(symbol_state); /* the first call interns all keys, which allocates */
    heap_page_bytes = memscope_gc_constant("HEAP_PAGE_SIZE");
    parameters = rb_const_get(vm, rb_intern("DEFAULT_PARAMS"));
    fiber_stack_bytes = pooled_fiber_bytes(parameters);
    if (MEMSCOPE_THREADS_MIGRATE) {
        thread_vm_bytes = memscope_hash_get_size(parameters, "thread_vm_stack_size");
        thread_machine_bytes = memscope_hash_get_size(parameters, "thread_machine_stack_size");
    }
}
