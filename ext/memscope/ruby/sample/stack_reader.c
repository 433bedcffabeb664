#include "ruby/sample/stack_reader.h"

#include "base/protections.h"
#include "ruby/ractors.h"
#include "ruby/ruby_private.h"
#include "ruby/sample/event_hooks.h"
#include "ruby/sample/interned.h"
#include "ruby/sample/sampled_frames.h"
#include "ruby/sample/tags.h"
#include "sampling/native_frames.h"

#include <pthread.h>
#include <ruby/debug.h>
#include <ruby/thread.h>
#include <ruby/vm.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include <sys/prctl.h>

#define NATIVE_LIMIT 40
#define RUBY_LIMIT 64
#define LABELS 4 /* words after the frames: state, tag, thread, generation */

/* ---- when Ruby's frames may be read ---------------------------------------------------------------------------- */

static atomic_bool ruby_ended;
static bool frames_without_gvl; /* see may_read */

/*
 * Set when the Ruby thread has ended but its native thread lives on (TLS destructors, the thread cache). 3.1 clears the
 * variable of ruby_native_thread_p (thread_pthread.c, native_thread_destroy), unlike later versions.
 *
 * Since 3.3 a native thread may run several Ruby threads in turn, of Ractors other than the main one or, with
 * RUBY_MN_THREADS=1, of all. A Ruby thread that started on another native thread fires RESUMED here, not STARTED.
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
 * Returns 0 if the calling thread's Ruby frames can be read.
 *
 * The process crashes at exit without the ruby_ended check, and immediately without the native-thread check. No test
 * fails without the other checks, but they are needed all the same:
 * - thread_ended: unless Ruby clears the variable of ruby_native_thread_p (3.1.2 does, thread_pthread.c line 711),
 *   ruby_native_thread_p still returns true after the thread has ended and its execution context has been freed.
 * - the GVL: a thread without it still owns its control frame stack, but compaction concurrently moves the objects that
 *   the frames point to (gc.c 3.1.2, gc_compact_start, line 5836). See the readers below.
 * - during GC: in a step of sweeping or compaction a frame may point to an object that has moved, until the reference
 *   is updated (gc_sweep_continue, line 5737, before gc_update_references), and in the mark phase it can be too late to
 *   pin a further frame.
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
 * Readers announce themselves to wait_for_readers.
 *
 * The frames of a thread that waits without the GVL do not change, but compaction moves the objects they point to. So a
 * reader backs off during a GC, and a GC, which marks before it moves anything, waits in `mark` for the readers that
 * began before it. Both sides use seq_cst: either the reader sees the GC, or the mark phase sees the reader. (Tests
 * without the wait ran for minutes and saw no failure: a read takes about 1 us.) A GC cannot run while a reader holds
 * the GVL. But for ruby_thread_has_gvl_p, a thread that queues for the GVL holds it (thread.c 3.1.2, line 1927: only
 * blocking regions give it up), and a signal handler may allocate in that thread.
 *
 * Before 3.2 automatic compaction moves objects during lazy sweeping, when rb_during_gc is false (gc.c,
 * read_barrier_handler): with GC.auto_compact, frames are not read without the GVL in these versions (set by
 * MallocProfile).
 *
 * While the tables are emptied or rebuilt, `closed` keeps new readers out.
 */
static atomic_int readers;
static __thread int readers_here; /* this thread's part of readers: above 1 if a signal handler interrupted a reading */
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

/* ---- garbage collections ----------------------------------------------------------------------------------------- */

/*
 * At the end of a mark phase, a hook finds the live frames. A GC without the hook pins all frames whose addresses are
 * known. Before 3.3, the hook slows all allocations down, so it is removed after it has seen a major GC, and added
 * again when many frames have become text, or after MAJORS_PER_SWEEP further major GCs. Where no hook may be added at
 * all, or while other Ractors are alive, the addresses of the frames that are text are forgotten after every
 * MAJORS_PER_SWEEP major GCs. A forgotten frame gets a new number when it is sampled again, and there are too few
 * numbers to forget frames more often.
 */
#define HOOK_COMES_AND_GOES MEMSCOPE_GC_HOOKS_SLOW_ALLOCATION
#define MAJORS_PER_SWEEP 16

static bool watching, may_hook, hooked, missed;
static bool expired;           /* the hook has seen a major GC */
static size_t pinned_at;       /* the last GC that pinned all frames */
static uint32_t pinned_majors; /* major GCs that pinned all frames, since remove_hook or unpin */
static atomic_size_t checked;  /* GCs up to this one have freed no frame whose address is known */

static void on_end_of_marking(VALUE data, rb_trace_arg_t *trace);

/* ---- a stack ---------------------------------------------------------------------------------------------------- */

static atomic_uint generation;
static atomic_uint session; /* number of profile starts */
static _Atomic(uint64_t) readings, nanoseconds;

static uint32_t thread_name(void) {
    uint32_t index = 0;
    char name[16]; /* TASK_COMM_LEN */

    if (prctl(PR_GET_NAME, name) != 0)
        return 0;
    if (begin_reading())
        index = memscope_intern_thread_name(name, strnlen(name, sizeof name));
    end_reading();
    return index;
}

static unsigned read_ruby_frames(uint64_t *words, unsigned room) {
    VALUE frames[RUBY_LIMIT];
    int lines[RUBY_LIMIT];
    bool trusted = atomic_load(&checked) >= memscope_collections_ended();
    int count = rb_profile_frames(0, (int)(room < RUBY_LIMIT ? room : RUBY_LIMIT), frames, lines);

    for (int index = 0; index < count; index++) {
        uint32_t frame = memscope_sampled_frame(frames[index], trusted);

        words[index] = frame ? memscope_word(MEMSCOPE_WORD_RUBY, frame, (uint32_t)lines[index])
                             : memscope_word(MEMSCOPE_WORD_STATE, MEMSCOPE_STACK_NO_ROOM, 0);
    }
    return count > 0 ? (unsigned)count : 0;
}

/* The Ruby frames, leaf first, then the state unless it is 0. If there are no frames, there is always a state. */
static unsigned read_ruby(uint64_t *words, unsigned room, enum memscope_stack_state state, bool readable) {
    unsigned length = readable ? read_ruby_frames(words, room - 1) : 0;

    if (state == 0 && length == 0)
        state = MEMSCOPE_STACK_NO_FRAMES;
    if (state != 0)
        words[length++] = memscope_word(MEMSCOPE_WORD_STATE, state, 0);
    return length;
}

/* Native frames, then Ruby frames, as far as each can be read. */
static unsigned read_frames(uint64_t *words, unsigned room) {
    enum memscope_stack_state state = state_of_thread();
    bool readable = begin_reading() && may_read(state);
    unsigned length = memscope_native_frames(words, room < NATIVE_LIMIT ? room : NATIVE_LIMIT, readable);

    length += read_ruby(words + length, room - length + 1, state, readable);
    end_reading();
    return length;
}

unsigned memscope_read_stack(uint64_t *words, unsigned room) {
    uint64_t start = memscope_now_ns();
    uint32_t now = atomic_load(&session) & 0xffffff; /* before any frame is interned */
    uint32_t tag = memscope_current_tag(), name;
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
    atomic_fetch_add_explicit(&nanoseconds, memscope_now_ns() - start, memory_order_relaxed);
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
    return (struct memscope_stack_readings){atomic_load(&readings), atomic_load(&nanoseconds)};
}

/* ---- generations ------------------------------------------------------------------------------------------------ */

uint32_t memscope_generation(void) {
    return atomic_load(&generation);
}

uint32_t memscope_next_generation(void) {
    return (atomic_fetch_add(&generation, 1) + 1) & 0xffffff;
}

/* ---- the postponed job: frames become text ----------------------------------------------------------------------- */

static void add_hook(void) {
    hooked = memscope_event_hook_add(on_end_of_marking, RUBY_INTERNAL_EVENT_GC_END_MARK);
}

static void remove_hook(void) {
    if (hooked)
        memscope_event_hook_remove(on_end_of_marking);
    hooked = expired = false;
    pinned_majors = 0;
}

/* Forgotten frames keep their places until there are many. */
static void free_places(void) {
    if (!memscope_sampled_frames_crowded())
        return;
    atomic_store(&closed, true);
    wait_for_readers();
    memscope_sampled_frames_rebuild();
    atomic_store(&closed, false);
}

void memscope_stack_reader_settle(void) {
    uint32_t last = memscope_sampled_frames_last();

    wait_for_readers(); /* until every frame up to `last` has been stored */
    memscope_sampled_frames_settle(last);
    if (!watching)
        memscope_sampled_frames_forget();
    free_places();
}

static bool can_hook(void) {
    return may_hook && !memscope_ractors_alive();
}

static bool wants_hook(void) {
    return watching && can_hook() && !hooked &&
           (!HOOK_COMES_AND_GOES || memscope_sampled_frames_changed() || pinned_majors >= MAJORS_PER_SWEEP);
}

static bool pins_for_long(void) {
    return watching && !hooked && !can_hook() && pinned_majors >= MAJORS_PER_SWEEP;
}

static void unpin(void) {
    pinned_majors = 0;
    if (!memscope_sampled_frames_scarce())
        memscope_sampled_frames_forget();
}

/*
 * Does nothing in a Ractor other than the main one, because it would run in parallel with the main Ractor. If a GC was
 * missed, adds the hook again: before 4.0, a Ractor that ends switches all hooks off (Bug #19112).
 */
static void work(void *unused) {
    if (!memscope_in_main_ractor() || atomic_load(&ruby_ended))
        return;
    if (missed || expired)
        remove_hook();
    missed = false;
    memscope_stack_reader_settle();
    if (wants_hook())
        add_hook();
    if (pins_for_long())
        unpin();
}

static memscope_job job;

/* ---- the guard, an object for the garbage collector ------------------------------------------------------------ */

/* A GC ended its mark phase unseen, so frames that are text may be garbage. */
static void miss(void) {
    memscope_sampled_frames_forget();
    missed = true;
}

/* Runs again at the end of an incremental mark phase: a job may have added the hook between the two runs. */
static void begin_marking(void) {
    size_t count = rb_gc_count();

    if (count > atomic_load(&checked) + 1) {
        miss();
        atomic_store(&checked, count - 1);
    }
    if (!hooked && pinned_at != count) {
        pinned_at = count;
        pinned_majors += !memscope_collection_is_minor();
    }
    if (pinned_at == count)
        atomic_store(&checked, count);
}

static void on_end_of_marking(VALUE data, rb_trace_arg_t *trace) {
    size_t count = rb_gc_count();

    if (!hooked || pinned_at == count)
        return;
    if (count > atomic_load(&checked) + 1)
        miss();
    else
        memscope_sampled_frames_sweep(memscope_collection_is_minor());
    atomic_store(&checked, count);
    expired = HOOK_COMES_AND_GOES && !memscope_collection_is_minor();
    if (expired)
        memscope_job_request(job);
}

/*
 * Also called outside of a GC, by ObjectSpace.reachable_objects_from and by heap graphs. Outside of a GC it does not
 * wait: in the forked child of a heap graph, a reader that was active at the fork never ends.
 */
static void mark(void *unused) {
    bool collecting = rb_during_gc();

    if (PROTECTS(waiting) && collecting)
        wait_for_readers(); /* so that the frames that they have added are marked below */
    if (watching && collecting)
        begin_marking();
    memscope_sampled_frames_mark(watching && pinned_at == rb_gc_count());
    if (missed || memscope_sampled_frames_pending() || memscope_sampled_frames_crowded() || wants_hook() ||
        pins_for_long())
        memscope_job_request(job);
}

/*
 * GC.latest_gc_info cannot be called here. Frames that an unseen GC may have freed are forgotten first: their pages may
 * be gone.
 */
static void compact(void *unused) {
    size_t count = rb_gc_count();

    wait_for_readers();
    if (watching && count > atomic_load(&checked)) {
        miss();
        atomic_store(&checked, count);
    }
    memscope_sampled_frames_move();
}

static void end_ruby(void *unused) {
    atomic_store(&ruby_ended, true);
}

/*
 * Not write-barrier protected, on purpose: code inside malloc cannot run a write barrier, so every minor GC has to mark
 * this object, as it marks all old unprotected objects (gc.c 3.1.2, rgengc_rememberset_mark, line 8311). If this object
 * were protected, new frames would stay unmarked until the next major GC. It has no dsize function: its tables are
 * mapped, not allocated by malloc.
 */
static const rb_data_type_t guard_type = {
    .wrap_struct_name = "Memscope::Native sampled frames",
    .function = {.dmark = mark, .dfree = end_ruby, .dcompact = compact},
};

static void at_vm_exit(ruby_vm_t *unused) {
    (void)unused;
    atomic_store(&ruby_ended, true);
}

/*
 * The child has no other threads, hence no readers in other threads. An entry that such a reader of the parent had
 * begun stays unused.
 */
static void in_forked_child(void) {
    atomic_store(&readers, readers_here);
}

void memscope_stack_reader_begin(void) {
    atomic_store(&closed, true);
    wait_for_readers();
    memscope_empty_interned();
    memscope_sampled_frames_clear();
    atomic_fetch_add(&session, 1);
    atomic_store(&closed, false);
    atomic_store(&generation, 0);
    atomic_store(&readings, 0);
    atomic_store(&nanoseconds, 0);
    atomic_store(&checked, memscope_collections_ended());
    missed = false;
    watching = true;
    if (wants_hook())
        add_hook();
}

void memscope_stack_reader_end(void) {
    watching = false;
    remove_hook();
    memscope_stack_reader_settle();
}

bool memscope_stack_reader_prepare(bool without_gvl) {
    static bool prepared;

    frames_without_gvl = without_gvl;
    if (!memscope_interned_open() || !memscope_sampled_frames_open())
        return false;
    if (prepared)
        return true;
    memscope_other_ractors(); /* for can_hook */
    may_hook = MEMSCOPE_KNOWS_MARKED && !memscope_hooks_crash_new_ractors();
    memscope_collections_prepare(); /* raises under a modular GC without the figures that it needs */
    prepared = true;
    job = memscope_job_prepare(work); /* without it, frames become text when the profile is read */
    /* The data pointer may be anything but NULL: with NULL, the object would be neither marked nor freed. */
    rb_gc_register_mark_object(TypedData_Wrap_Struct(rb_cObject, &guard_type, &readers));
    ruby_vm_at_exit(at_vm_exit);
    pthread_atfork(NULL, NULL, in_forked_child);
#ifdef HAVE_RB_INTERNAL_THREAD_ADD_EVENT_HOOK
    rb_internal_thread_add_event_hook(note_thread, THREAD_EVENTS, NULL);
#endif
    return true;
}
