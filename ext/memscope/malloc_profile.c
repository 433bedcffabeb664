#include "malloc_profile.h"

#include "native_frames.h"
#include "protections.h"
#include "ruby_private.h"
#include "scratch.h"

#include <pthread.h>
#include <ruby/debug.h>
#include <ruby/thread.h>
#include <ruby/vm.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifdef __linux__
#include <sys/prctl.h>
#endif

#define NATIVE_LIMIT 40
#define RUBY_LIMIT 64
#define LABELS 4 /* words after the frames: state, tag, thread, generation */

/* ---- interned frames ----------------------------------------------------------------------------------------------
 */

#define FRAME_SLOTS (1u << 16)
#define FRAME_LIMIT (FRAME_SLOTS / 2)
#define PROBES 256

/*
 * Frames (iseqs and method entries) by address, found and added without a lock. They are pinned: their index in a
 * stack is all that is left of them there. 786 kB of address space, of which what is used is resident.
 */
static struct interned_frames {
    _Atomic(VALUE) slots[FRAME_SLOTS];
    _Atomic(VALUE) dense[FRAME_LIMIT]; /* the same, for marking */
    atomic_uint count;
} * interned;

/*
 * From 1 on; 0 when there is no room. A place among those to be marked is taken first, and stays empty where another
 * thread interns the frame meanwhile: no frame is in a slot that is not marked.
 */
static uint32_t intern_frame(VALUE frame) {
    uint32_t slot = (uint32_t)((uint64_t)frame * UINT64_C(0x9E3779B97F4A7C15) >> 48);
    unsigned place = FRAME_LIMIT;

    for (int probe = 0; probe < PROBES; probe++, slot = (slot + 1) & (FRAME_SLOTS - 1)) {
        VALUE found = atomic_load_explicit(&interned->slots[slot], memory_order_acquire);

        if (found == 0 && place == FRAME_LIMIT && atomic_load(&interned->count) < FRAME_LIMIT) {
            place = atomic_fetch_add(&interned->count, 1);
            if (place < FRAME_LIMIT)
                atomic_store(&interned->dense[place], frame);
        }
        if (found == 0 && place >= FRAME_LIMIT)
            return 0;
        if (found == 0 && atomic_compare_exchange_strong(&interned->slots[slot], &found, frame))
            return slot + 1;
        if (found == frame)
            return slot + 1;
    }
    return 0;
}

VALUE memscope_interned_frame(uint64_t word) {
    uint32_t index = memscope_word_index(word);
    VALUE frame = index == 0 || index > FRAME_SLOTS ? 0 : atomic_load(&interned->slots[index - 1]);

    return frame ? frame : Qnil;
}

/* ---- interned names -----------------------------------------------------------------------------------------------
 */

#define NAME_LIMIT 4096
#define NAME_BYTES 64

/* An entry is published by its length and does not change. */
struct name {
    atomic_uint state; /* 0 free, 1 being written, then 2 + its length */
    char text[NAME_BYTES];
};

/*
 * Tags stay: fibers keep their indexes. Threads' names, of which a process may have ever new ones, are of one profile;
 * they are read as its frames are (begin_reading).
 */
static struct name *tag_names, *thread_names;

static bool map_names(struct name **names) {
    if (!*names)
        *names = memscope_lasting_map(NAME_LIMIT * sizeof **names);
    return *names != NULL;
}

#define NO_ROOM (NAME_LIMIT + 1)

/* From 1 on; NO_ROOM when there is none. */
static uint32_t intern_name(struct name *names, const char *text, size_t length) {
    uint32_t hash = 2166136261u;

    length = length < NAME_BYTES ? length : NAME_BYTES;
    for (size_t index = 0; index < length; index++)
        hash = (hash ^ (unsigned char)text[index]) * 16777619u;
    for (uint32_t probe = 0; probe < 64; probe++) {
        uint32_t slot = (hash + probe) % NAME_LIMIT;
        unsigned state = atomic_load_explicit(&names[slot].state, memory_order_acquire), unused = 0;

        if (state == 0 && atomic_compare_exchange_strong(&names[slot].state, &unused, 1)) {
            memcpy(names[slot].text, text, length);
            atomic_store_explicit(&names[slot].state, 2 + (unsigned)length, memory_order_release);
            return slot + 1;
        }
        if (state == 2 + length && memcmp(names[slot].text, text, length) == 0)
            return slot + 1;
    }
    return NO_ROOM;
}

VALUE memscope_interned_name(uint64_t word) {
    const struct name *names = memscope_word_kind(word) == MEMSCOPE_WORD_TAG ? tag_names : thread_names;
    uint32_t index = memscope_word_index(word);
    unsigned state = index == 0 || index > NAME_LIMIT ? 0 : atomic_load(&names[index - 1].state);

    if (index == NO_ROOM)
        return rb_utf8_str_new_cstr("[overflow]");
    return state < 2 ? Qnil : rb_utf8_str_new(names[index - 1].text, state - 2);
}

/* ---- whether Ruby's frames may be read ------------------------------------------------------------------------------
 */

static atomic_bool ruby_ended;
static bool frames_without_gvl; /* see may_read */

/*
 * Set in a thread that has ended for Ruby while its native thread goes on (TLS destructors, the thread cache). 3.1
 * clears what ruby_native_thread_p looks at itself (thread_pthread.c, native_thread_destroy); later ones do not.
 *
 * Since 3.3 a native thread may run one Ruby thread after another (those of Ractors other than the main one, and with
 * RUBY_MN_THREADS=1 all). One that has begun elsewhere does not start there, but resumes.
 */
#ifdef HAVE_RB_INTERNAL_THREAD_ADD_EVENT_HOOK
#define THREAD_EVENTS                                                                                                  \
    (RUBY_INTERNAL_THREAD_EVENT_STARTED | RUBY_INTERNAL_THREAD_EVENT_EXITED |                                          \
     (RUBY_API_VERSION_CODE >= 30300 ? RUBY_INTERNAL_THREAD_EVENT_RESUMED : 0))

static __thread bool thread_ended;

static void note_thread(rb_event_flag_t event, const rb_internal_thread_event_data_t *data, void *unused) {
    (void)data, (void)unused;
    thread_ended = event == RUBY_INTERNAL_THREAD_EVENT_EXITED;
}
#else
static const bool thread_ended = false;
#endif

/*
 * 0: the thread's Ruby frames can be read.
 *
 * Without the first look a process crashes when it ends, without the one at the native thread at once. The others could
 * not be made to fail by leaving them out, and are needed all the same:
 *
 * - thread_ended: where Ruby does not clear what ruby_native_thread_p looks at (3.1.2 does, thread_pthread.c line 711),
 *   it is still there when the thread has ended, and its execution context has been freed.
 * - the GVL: frames on the control frame stack of a thread that does not hold it are its own, but what they point to is
 *   moved by compaction beside it (gc.c 3.1.2, gc_compact_start in line 5836): see the readers below.
 * - during GC: in a step of sweeping or compaction a frame may point to what has been moved and not been updated yet
 *   (gc_sweep_continue in line 5737; gc_update_references comes last), and in marking nothing may be pinned any more.
 */
static enum memscope_stack_state state_of_thread(void) {
    if (atomic_load_explicit(&ruby_ended, memory_order_relaxed) && PROTECTS(ruby_ended))
        return MEMSCOPE_STACK_RUBY_ENDED;
    if ((thread_ended && PROTECTS(thread_ended)) || (!ruby_native_thread_p() && PROTECTS(native_thread)))
        return MEMSCOPE_STACK_NOT_RUBY;
    if (!ruby_thread_has_gvl_p() && PROTECTS(gvl))
        return MEMSCOPE_STACK_NO_GVL;
    if (rb_during_gc() && PROTECTS(during_gc))
        return MEMSCOPE_STACK_DURING_GC;
    return 0;
}

/*
 * Readers announce themselves, for two who wait for them.
 *
 * A thread that waits without the GVL has frames that do not change: but for compaction, which moves what they point
 * to. So a reader gives up where a GC is under way; GC, whose marking comes before it moves anything, waits in
 * mark_interned for the readers that were there first. Both orders are seq_cst: either the reader sees during_gc, or
 * the marking sees the reader. (Left out, it did not fail in minutes: a reading takes a microsecond.) A reader that
 * holds the GVL is none that a GC can meet; but a thread that queues for the GVL counts as having it (thread.c 3.1.2,
 * ruby_thread_has_gvl_p in line 1927: only blocking regions give it up), and a signal handler may allocate.
 *
 * Before 3.2 automatic compaction moves objects while it sweeps lazily, outside of a GC in this sense (gc.c,
 * read_barrier_handler): with GC.auto_compact such frames are not read there.
 *
 * And memscope_forget_interned closes the table, so that no index of a frame is handed out while it is emptied.
 */
static atomic_int readers;
static __thread int readers_here; /* of these, of this thread: one, or more where a signal handler came in between */
static atomic_bool closed;

static bool begin_reading(void) {
    readers_here++;
    atomic_fetch_add(&readers, 1);
    return !atomic_load(&closed);
}

static void end_reading(void) {
    atomic_fetch_sub(&readers, 1);
    readers_here--;
}

static bool may_read(enum memscope_stack_state state) {
    return state == 0 ? !rb_during_gc() || !PROTECTS(during_gc)
                      : state == MEMSCOPE_STACK_NO_GVL && frames_without_gvl && !rb_during_gc();
}

static void wait_for_readers(void) {
    atomic_thread_fence(memory_order_seq_cst);
    while (atomic_load(&readers) > readers_here)
        sched_yield();
}

/* ---- a stack ---------------------------------------------------------------------------------------------------- */

static atomic_uint generation;
static atomic_uint session;   /* counts the starts */
static __thread uint32_t tag; /* index of a name; 0: none. Of the fiber that this thread runs */
static _Atomic(uint64_t) readings, nanoseconds;

static uint32_t thread_name(void) {
    uint32_t index = 0;
#ifdef __linux__
    char name[16]; /* TASK_COMM_LEN */

    if (prctl(PR_GET_NAME, name) != 0)
        return 0;
    if (begin_reading())
        index = intern_name(thread_names, name, strnlen(name, sizeof name));
    end_reading();
#endif
    return index;
}

static unsigned read_ruby_frames(uint64_t *words, unsigned room) {
    VALUE frames[RUBY_LIMIT];
    int lines[RUBY_LIMIT];
    int count = rb_profile_frames(0, (int)(room < RUBY_LIMIT ? room : RUBY_LIMIT), frames, lines);

    for (int index = 0; index < count; index++) {
        uint32_t frame = intern_frame(frames[index]);

        words[index] = frame ? memscope_word(MEMSCOPE_WORD_RUBY, frame, (uint32_t)lines[index])
                             : memscope_word(MEMSCOPE_WORD_STATE, MEMSCOPE_STACK_OVERFLOW, 0);
    }
    return count > 0 ? (unsigned)count : 0;
}

/* Ruby frames, and the state where there are none or where it matters. Leaf first. */
static unsigned read_ruby(uint64_t *words, unsigned room, enum memscope_stack_state state, bool readable) {
    unsigned length = readable ? read_ruby_frames(words, room - 1) : 0;

    if (state == 0 && length == 0)
        state = MEMSCOPE_STACK_NO_FRAMES;
    if (state != 0)
        words[length++] = memscope_word(MEMSCOPE_WORD_STATE, state, 0);
    return length;
}

static uint64_t clock_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* The frames, as far as they can be had. */
static unsigned read_frames(uint64_t *words, unsigned room) {
    enum memscope_stack_state state = state_of_thread();
    bool readable = begin_reading() && may_read(state);
    unsigned length = memscope_native_frames(words, room < NATIVE_LIMIT ? room : NATIVE_LIMIT, readable);

    length += read_ruby(words + length, room - length + 1, state, readable);
    end_reading();
    return length;
}

unsigned memscope_read_stack(uint64_t *words, unsigned room) {
    uint64_t start = clock_ns();
    uint32_t now = atomic_load(&session) & 0xffffff, name; /* before any frame is interned */
    unsigned length;

    if (room <= LABELS)
        return 0;
    length = read_frames(words, room - LABELS);
    name = thread_name();

    if (tag)
        words[length++] = memscope_word(MEMSCOPE_WORD_TAG, tag, 0);
    if (name)
        words[length++] = memscope_word(MEMSCOPE_WORD_THREAD, name, 0);
    words[length++] = memscope_word(MEMSCOPE_WORD_GENERATION, atomic_load(&generation), now);
    atomic_fetch_add_explicit(&readings, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&nanoseconds, clock_ns() - start, memory_order_relaxed);
    return length;
}

uint32_t memscope_session(void) {
    return atomic_load(&session);
}

bool memscope_is_of_this_session(const uint64_t *words, unsigned length) {
    uint64_t last = length > 0 ? words[length - 1] : 0;

    return memscope_word_kind(last) == MEMSCOPE_WORD_GENERATION &&
           memscope_word_line(last) == (atomic_load(&session) & 0xffffff);
}

struct memscope_stack_readings memscope_stack_readings(void) {
    return (struct memscope_stack_readings){atomic_load(&readings), atomic_load(&nanoseconds),
                                            atomic_load(&interned->count)};
}

/* ---- generations and tags -----------------------------------------------------------------------------------------
 */

uint32_t memscope_generation(void) {
    return atomic_load(&generation);
}

uint32_t memscope_next_generation(void) {
    return (atomic_fetch_add(&generation, 1) + 1) & 0xffffff;
}

/*
 * A tag is a fiber's: where it is kept while others run, under a name of Thread#[]. What malloc looks at is a copy,
 * which is there in any state of the process; it is taken where a thread goes on with another fiber.
 */
static ID tag_key;

static uint32_t tag_of_fiber(VALUE thread) {
    VALUE kept = rb_thread_local_aref(thread, tag_key);

    return FIXNUM_P(kept) ? (uint32_t)FIX2ULONG(kept) : 0;
}

/* A frozen thread keeps nothing: its fibers share its tag. */
static void set_tag(uint32_t index) {
    VALUE thread = rb_thread_current();

    if (!OBJ_FROZEN(thread))
        rb_thread_local_aset(thread, tag_key, index ? UINT2NUM(index) : Qnil);
    tag = index;
}

/*
 * A fiber that begins takes over the tag of the one that resumes it: it has no frame yet, while one that has run before
 * is in the method that it has yielded in. Called by Ruby in the fiber that goes on, but not where it left off inside
 * of a TracePoint (vm_trace.c 3.1.2, rb_exec_event_hooks): then the other fiber's tag counts until the next switch.
 */
static void follow_fiber(rb_event_flag_t event, VALUE data, VALUE self, ID method, VALUE owner) {
    VALUE frame;
    int line;

    if (tag != 0 && rb_profile_frames(0, 1, &frame, &line) == 0)
        set_tag(tag);
    else
        tag = tag_of_fiber(rb_thread_current());
}

#if defined(HAVE_RB_INTERNAL_THREAD_ADD_EVENT_HOOK) && RUBY_API_VERSION_CODE >= 30300
static void follow_thread(rb_event_flag_t event, const rb_internal_thread_event_data_t *data, void *unused) {
    tag = tag_of_fiber(data->thread);
}
#endif

/* With RUBY_MN_THREADS=1 a thread goes on in another native thread. (Other Ractors, which always do, have no tags.) */
static void follow_threads(void) {
#if defined(HAVE_RB_INTERNAL_THREAD_ADD_EVENT_HOOK) && RUBY_API_VERSION_CODE >= 30300
    const char *setting = getenv("RUBY_MN_THREADS");

    if (setting && atoi(setting) > 0)
        rb_internal_thread_add_event_hook(follow_thread, RUBY_INTERNAL_THREAD_EVENT_RESUMED, NULL);
#endif
}

/* From the first tag on, for good: 0.05 microseconds a switch, and nothing else (no event that code is compiled for).
 */
static void begin_following(void) {
    if (tag_key)
        return;
    tag_key = rb_intern("__memscope_tag__");
    rb_add_event_hook(follow_fiber, RUBY_EVENT_FIBER_SWITCH, Qnil);
    follow_threads();
}

static VALUE yield_nothing(VALUE unused) {
    return rb_yield_values(0); /* a lambda takes no nil for nothing */
}

static VALUE restore_tag(VALUE before) {
    set_tag(NUM2UINT(before));
    return Qnil;
}

/* Native.tag(name) { … } -> the block's value. The name's first 64 bytes count. */
static VALUE native_tag(VALUE self, VALUE name) {
    uint32_t before = tag;

    begin_following();
    set_tag(map_names(&tag_names) ? intern_name(tag_names, RSTRING_PTR(name), (size_t)RSTRING_LEN(name)) : 0);
    return rb_ensure(yield_nothing, Qnil, restore_tag, UINT2NUM(before));
}

/* ---- what the garbage collector is told -----------------------------------------------------------------------------
 */

static void mark_interned(void *unused) {
    unsigned count;

    if (PROTECTS(waiting))
        wait_for_readers(); /* what they have interned by then is counted */
    count = PROTECTS(marking) ? atomic_load(&interned->count) : 0;
    for (unsigned index = 0; index < count && index < FRAME_LIMIT; index++) {
        VALUE frame = atomic_load(&interned->dense[index]);

        if (frame && PROTECTS(pinning))
            rb_gc_mark(frame);
        else if (frame)
            rb_gc_mark_movable(frame);
    }
}

static void end_ruby(void *unused) {
    atomic_store(&ruby_ended, true);
}

static size_t interned_bytes(const void *unused) {
    return sizeof *interned;
}

/*
 * Not write-barrier protected, on purpose: what is interned inside malloc tells the collector of no new reference, so
 * it has to look at this object in every minor collection, as it does at all that are old and not protected
 * (gc.c 3.1.2, rgengc_rememberset_mark, line 8311). Protected, its new frames would not be marked until the next major
 * one, which is to do without the marking.
 */
static const rb_data_type_t interned_type = {
    .wrap_struct_name = "Memscope::Native interned frames",
    .function = {.dmark = mark_interned, .dfree = end_ruby, .dsize = interned_bytes},
};

static void at_vm_exit(ruby_vm_t *unused) {
    (void)unused;
    atomic_store(&ruby_ended, true);
}

/* The readers of other threads are gone with them; what they had begun to intern takes a place and no more. */
static void in_forked_child(void) {
    atomic_store(&readers, readers_here);
}

/* The kernel takes no pages back that are locked (mlockall). */
static void empty(void *table, size_t bytes) {
    if (madvise(table, bytes, MADV_DONTNEED) != 0)
        memset(table, 0, bytes);
}

void memscope_forget_interned(void) {
    atomic_store(&closed, true);
    wait_for_readers();
    empty(interned, sizeof *interned);
    empty(thread_names, NAME_LIMIT * sizeof *thread_names);
    atomic_fetch_add(&session, 1);
    atomic_store(&closed, false);
    atomic_store(&generation, 0);
    atomic_store(&readings, 0);
    atomic_store(&nanoseconds, 0);
}

/* Native.prepare_profile -> true; false for want of memory. Once; what it makes stays. */
static VALUE native_prepare_profile(VALUE self) {
    if (!interned) {
        struct interned_frames *frames = memscope_lasting_map(sizeof *frames);

        if (!frames || !map_names(&tag_names) || !map_names(&thread_names))
            return Qfalse;
        interned = frames;
        rb_gc_register_mark_object(TypedData_Wrap_Struct(rb_cObject, &interned_type, interned));
        ruby_vm_at_exit(at_vm_exit);
        pthread_atfork(NULL, NULL, in_forked_child);
#ifdef HAVE_RB_INTERNAL_THREAD_ADD_EVENT_HOOK
        rb_internal_thread_add_event_hook(note_thread, THREAD_EVENTS, NULL);
#endif
    }
    return Qtrue;
}

/* Native.learn_interpreter: called from Ruby code at the bottom of a thread's stack. Once: it may be unwinding by then.
 */
static VALUE native_learn_interpreter(VALUE self) {
    static bool learnt;

    if (!learnt)
        memscope_native_frames_learn_callers(3);
    learnt = true;
    return Qnil;
}

/* Native.read_frames_without_gvl(whether). */
static VALUE native_read_frames_without_gvl(VALUE self, VALUE whether) {
    frames_without_gvl = RTEST(whether);
    return whether;
}

void Init_memscope_malloc_profile(void) {
    rb_define_module_function(rb_mMemscopeNative, "prepare_profile", native_prepare_profile, 0);
    rb_define_module_function(rb_mMemscopeNative, "learn_interpreter", native_learn_interpreter, 0);
    rb_define_module_function(rb_mMemscopeNative, "read_frames_without_gvl", native_read_frames_without_gvl, 1);
    rb_define_module_function(rb_mMemscopeNative, "tag", native_tag, 1);
}
