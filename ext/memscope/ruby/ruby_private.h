/*
 * All declarations of Ruby symbols that are in no public header, and all constants of Ruby's internals that no
 * interface exposes. Each states the versions of Ruby that have it, and the fallback for other versions. Delete the
 * lines of a symbol or constant that Ruby publishes.
 */
#pragma once

#include "extconf.h"

#include <ruby.h>
#include <ruby/st.h>
#include <ruby/version.h>
#include <string.h>

#include "values.h"

/*
 * The number that GC::INTERNAL_CONSTANTS has under a name, 1 for true. 0 if this Ruby does not have that Hash, or its
 * garbage collector no such constant (a modular GC has its own). Needs the GVL.
 */
static inline size_t memscope_gc_constant(const char *name) {
    ID all = rb_intern("INTERNAL_CONSTANTS");
    VALUE constants = rb_const_defined(rb_mGC, all) ? rb_const_get(rb_mGC, all) : Qnil;

    return RB_TYPE_P(constants, T_HASH) ? memscope_hash_get_size(constants, name) : 0;
}

/* The Symbol of a number in GC.stat, or nil if `stat`, filled by it, lacks the number, as a modular GC's may. */
static inline VALUE memscope_gc_symbol(VALUE stat, const char *name) {
    VALUE symbol = memscope_symbol(name);

    return NIL_P(rb_hash_lookup(stat, symbol)) ? Qnil : symbol;
}

/* The number, 0 for nil. */
static inline size_t memscope_gc_figure(VALUE symbol) {
    return NIL_P(symbol) ? 0 : rb_gc_stat(symbol);
}

/*
 * GC.start and Ractor.count allocate fewer objects than this. If more objects than this were allocated while one of
 * these methods ran, other threads have run.
 */
#define MEMSCOPE_FEW_OBJECTS 50

/*
 * Calls back once per heap page in use, with the range from its first slot to the end of its last slot, stride bytes
 * per slot (under modular GCs without pages, once per object). Before that, finishes an incremental mark or lazy sweep
 * in progress (26 to 43 ms measured at 1.5 M objects). Allocates no objects, but allocates one temporary array of
 * pointers per slot size with malloc. Exported from 3.1 to 4.1dev.
 */
typedef int memscope_page_callback(void *start, void *end, size_t stride, void *data);
#ifdef HAVE_RB_OBJSPACE_EACH_OBJECTS
void rb_objspace_each_objects(memscope_page_callback *callback, void *data);
#define MEMSCOPE_LISTS_PAGES 1
#else
#define rb_objspace_each_objects NULL
#define MEMSCOPE_LISTS_PAGES 0
#endif

/*
 * Like rb_objspace_each_objects, but leaves a GC in progress alone. Exported by 3.1, 3.2 and 3.3, gone in 3.4.
 * Preferred where it exists.
 */
#ifdef HAVE_RB_OBJSPACE_EACH_OBJECTS_WITHOUT_SETUP
void rb_objspace_each_objects_without_setup(memscope_page_callback *callback, void *data);
#define MEMSCOPE_LISTING_FINISHES_GC 0
#else
#define rb_objspace_each_objects_without_setup rb_objspace_each_objects
#define MEMSCOPE_LISTING_FINISHES_GC 1
#endif

/*
 * True if pages can be listed during a sweep, and the marks of objects are known: an unmarked object is garbage or was
 * made since the mark phase.
 */
#if defined(HAVE_RB_OBJSPACE_MARKED_OBJECT_P) && !MEMSCOPE_LISTING_FINISHES_GC
#define MEMSCOPE_WALKS_DURING_GC 1
#else
#define MEMSCOPE_WALKS_DURING_GC 0
#endif

/*
 * True if this thread holds the GVL, false in a thread that Ruby did not create. Exported from 3.1 to 4.1dev
 * (thread.c).
 */
int ruby_thread_has_gvl_p(void);

/*
 * The VM lock, under which Ractors add heap pages and sweep (vm_sync.h, RB_VM_LOCK_ENTER). Exported by 3.1 and 3.2, not
 * by 3.3, where a Ractor that grows the heap during a listing makes each_objects write past the end of its array.
 */
#ifdef HAVE_RB_VM_LOCK_ENTER_BODY
void rb_vm_lock_enter_body(unsigned int *level);
void rb_vm_lock_leave_body(unsigned int *level);
#define MEMSCOPE_LOCKS_VM 1
#else
#define MEMSCOPE_LOCKS_VM 0
#define rb_vm_lock_enter_body(level) ((void)(level))
#define rb_vm_lock_leave_body(level) ((void)(level))
#endif

/*
 * ObjectSpace.memsize_of: bytes of an object's slot plus the malloc memory that it reports. Exported from 3.1 to
 * 4.1dev.
 */
size_t rb_obj_memsize_of(VALUE object);

/*
 * struct heap_page, which the first word of every heap page points to (struct heap_page_header), begins with slot_size,
 * total_slots and free_slots, 16 bits each, from 3.1 to 4.0 (gc.c, gc/default/default.c). 4.1dev differs. In a Ruby
 * with another layout, the word may be anything: readers must not dereference it until they have checked the values,
 * read by memscope_own_memory_read, against the slots themselves.
 */
struct memscope_heap_page_header {
    unsigned short slot_size, total_slots, free_slots;
};
static inline const struct memscope_heap_page_header *memscope_header_of_page(uintptr_t page) {
    return *(const struct memscope_heap_page_header *const *)page; // NOLINT(performance-no-int-to-ptr)
}

/*
 * Calls back for each object that an object refers to, or that a root refers to, as the mark phase finds them. Runs
 * mark functions. Allocates nothing. Must not run during a GC or while other Ractors are alive. Exported from 3.1 to
 * 4.1dev. In 4.1dev it frees a class's invalid call caches: a forked child then hangs until its deadline if another
 * thread held malloc's lock at the fork.
 */
#ifdef HAVE_RB_OBJSPACE_REACHABLE_OBJECTS_FROM
void rb_objspace_reachable_objects_from(VALUE object, void (*callback)(VALUE referred, void *data), void *data);
void rb_objspace_reachable_objects_from_root(void (*callback)(const char *category, VALUE object, void *data),
                                             void *data);
#define MEMSCOPE_FOLLOWS_REFERENCES 1
#else
#define MEMSCOPE_FOLLOWS_REFERENCES 0
#define rb_objspace_reachable_objects_from(object, callback, data) ((void)(object), (void)(callback), (void)(data))
#define rb_objspace_reachable_objects_from_root(callback, data) ((void)(callback), (void)(data))
#endif

/*
 * A Hash with this flag has an st_table. Before 3.3, RBasic is followed by a pointer to it. Since 3.3, RBasic and the
 * default value are followed by the table itself (internal/hash.h, RHASH_ST_TABLE). Readers must check this layout
 * against Hashes with known content.
 */
#define MEMSCOPE_HASH_HAS_TABLE RUBY_FL_USER3
#define MEMSCOPE_HASH_TABLE_OFFSET (sizeof(struct RBasic) + (RUBY_API_VERSION_CODE >= 30300 ? sizeof(VALUE) : 0))
#define MEMSCOPE_HASH_TABLE_IS_INSIDE (RUBY_API_VERSION_CODE >= 30300)
static inline const st_table *memscope_table_of_hash(VALUE hash) {
    const char *place = (const char *)hash + MEMSCOPE_HASH_TABLE_OFFSET;

    if (!RB_FL_TEST_RAW(hash, MEMSCOPE_HASH_HAS_TABLE))
        return NULL;
    return MEMSCOPE_HASH_TABLE_IS_INSIDE ? (const st_table *)place : *(const st_table *const *)place;
}

/* struct ar_table_struct since 3.3 (internal/hash.h): 8 pairs, and one hint byte for each pair. */
#define MEMSCOPE_SMALL_HASH_TABLE_BYTES (8 * 2 * sizeof(VALUE) + 8)

/*
 * The size by which compaction picks an object's new slot size, 0 if the object keeps its slot size. Exported by 3.4
 * (gc.c).
 */
#ifdef HAVE_RB_GC_OBJ_OPTIMAL_SIZE
size_t rb_gc_obj_optimal_size(VALUE object);
#endif

/* RARRAY_SHARED_ROOT_FLAG (array.c), STR_SHARED_ROOT, STR_NOFREE (string.c). */
#define MEMSCOPE_ARRAY_IS_SHARED_ROOT (RUBY_API_VERSION_CODE < 30200 ? RUBY_FL_USER5 : RUBY_FL_USER12)
#define MEMSCOPE_STRING_IS_SHARED_ROOT RUBY_FL_USER5
#define MEMSCOPE_STRING_IS_NOT_FREED RUBY_FL_USER18

/*
 * True if a plain object's variables are in its slot. Instead of ROBJECT_EMBED, 4.0 has ROBJECT_HEAP, the inverse flag.
 * 4.1dev has neither.
 */
#if defined(ROBJECT_HEAP)
#define MEMSCOPE_OBJECT_IS_EMBEDDED(object) (!RB_FL_TEST_RAW(object, ROBJECT_HEAP))
#elif defined(ROBJECT_EMBED)
#define MEMSCOPE_OBJECT_IS_EMBEDDED(object) RB_FL_TEST_RAW(object, ROBJECT_EMBED)
#else
#define MEMSCOPE_OBJECT_IS_EMBEDDED(object) false
#endif

/* RSTRUCT_EMBED_LEN_MASK: two bits before 3.3, seven since. */
#define MEMSCOPE_STRUCT_IS_EMBEDDED ((RUBY_API_VERSION_CODE < 30300 ? 3u : 127u) << (RUBY_FL_USHIFT + 1))

/* BIGNUM_EMBED_FLAG */
#define MEMSCOPE_BIGNUM_IS_EMBEDDED RUBY_FL_USER2

/*
 * True if an object has generic instance variables (of an object that is not a T_OBJECT, T_CLASS or T_MODULE) in a
 * table of the VM. From 4.0 on they belong to another object, an imemo_fields.
 */
#if RUBY_API_VERSION_CODE < 40000
#define MEMSCOPE_HAS_GENERIC_VARIABLES(object) RB_FL_TEST_RAW(object, RUBY_FL_EXIVAR)
#else
#define MEMSCOPE_HAS_GENERIC_VARIABLES(object) false
#endif

/*
 * Returns true if, by an object's flags, rb_obj_memsize_of would return just the size of the object's slot (gc.c,
 * obj_memsize_of).
 */
static inline bool memscope_holds_only_its_slot(VALUE object) {
    if (RUBY_API_VERSION_CODE >= 40100 || MEMSCOPE_HAS_GENERIC_VARIABLES(object))
        return false;
    switch (RB_BUILTIN_TYPE(object)) {
    case RUBY_T_FLOAT:
    case RUBY_T_SYMBOL:
    case RUBY_T_RATIONAL:
    case RUBY_T_COMPLEX:
        return true;
    case RUBY_T_STRING:
        return !RB_FL_TEST_RAW(object, RSTRING_NOEMBED);
    case RUBY_T_ARRAY:
        return RB_FL_TEST_RAW(object, RARRAY_EMBED_FLAG) != 0;
    case RUBY_T_OBJECT:
        return MEMSCOPE_OBJECT_IS_EMBEDDED(object) != 0;
    case RUBY_T_STRUCT:
        return RB_FL_TEST_RAW(object, MEMSCOPE_STRUCT_IS_EMBEDDED) != 0;
    case RUBY_T_BIGNUM:
        return RB_FL_TEST_RAW(object, MEMSCOPE_BIGNUM_IS_EMBEDDED) != 0;
    default:
        return false;
    }
}

/*
 * As rb_objspace_reachable_objects_from, in less time: an embedded String refers to just its class (gc.c,
 * gc_mark_children), which may be 0. From 4.0 on, flags do not tell if it has variables.
 */
static inline void memscope_each_reference(VALUE object, void (*visit)(VALUE referred, void *data), void *data) {
    if (RUBY_API_VERSION_CODE < 40000 && RB_BUILTIN_TYPE(object) == RUBY_T_STRING &&
        memscope_holds_only_its_slot(object))
        visit(RBASIC_CLASS(object), data);
    else
        rb_objspace_reachable_objects_from(object, visit, data);
}

/* The functions of an untyped data object, and its data. There are no such objects in 4.1dev. */
#if RUBY_API_VERSION_CODE < 40100
#define MEMSCOPE_MARK_OF_UNTYPED_DATA(object) (RDATA(object)->dmark)
#define MEMSCOPE_FREE_OF_UNTYPED_DATA(object) (RDATA(object)->dfree)
#define MEMSCOPE_UNTYPED_DATA(object) (RDATA(object)->data)
#else
#define MEMSCOPE_MARK_OF_UNTYPED_DATA(object) NULL
#define MEMSCOPE_FREE_OF_UNTYPED_DATA(object) RUBY_NEVER_FREE
#define MEMSCOPE_UNTYPED_DATA(object) NULL
#endif
#define MEMSCOPE_FREE_OF_DATA(object)                                                                                  \
    (RTYPEDDATA_P(object) ? RTYPEDDATA_TYPE(object)->function.dfree : MEMSCOPE_FREE_OF_UNTYPED_DATA(object))

/* True if the object is a captured environment, by its imemo_type (internal/imemo.h). */
#define MEMSCOPE_IS_ENVIRONMENT(object) (RB_BUILTIN_TYPE(object) == RUBY_T_IMEMO && MEMSCOPE_IMEMO_KIND(object) == 0)

/*
 * The kind of an internal object (T_IMEMO), and the kind's name, a constant such as "iseq". Only kinds that exist have
 * a name. rb_imemo_name is exported from 3.1 to 4.1dev (internal/imemo.h).
 */
#define MEMSCOPE_IMEMO_KINDS (RUBY_API_VERSION_CODE < 40000 ? 13 : 14)
#define MEMSCOPE_IMEMO_KIND(object) ((int)(RBASIC(object)->flags >> RUBY_FL_USHIFT & 15))
#ifdef HAVE_RB_IMEMO_NAME
const char *rb_imemo_name(int kind);
#define MEMSCOPE_IMEMO_NAME(kind) (rb_imemo_name(kind))
#else
#define MEMSCOPE_IMEMO_NAME(kind) "unknown"
#endif

/* The kind with this name, -1 if this Ruby has none, or does not name its kinds. */
static inline int memscope_imemo_kind(const char *name) {
    int kind = MEMSCOPE_IMEMO_KINDS - 1;

    while (kind >= 0 && strcmp(MEMSCOPE_IMEMO_NAME(kind), name) != 0)
        kind--;
    return kind;
}

/* Compaction fills pages in descending order of pinned objects (gc.c). */
#define MEMSCOPE_COMPACTS_PINNED_PAGES_FIRST (RUBY_API_VERSION_CODE >= 30200)

/*
 * The slots that a GC keeps free: RUBY_GC_HEAP_INIT_SLOTS before 3.3, and from then on the sum of the heaps'
 * RUBY_GC_HEAP_%d_INIT_SLOTS. 4.1dev has RUBY_GC_HEAP_INIT_BYTES instead.
 */
#define MEMSCOPE_HEAPS_HAVE_INIT_SLOTS (RUBY_API_VERSION_CODE >= 30300)
#define MEMSCOPE_KNOWS_INIT_SLOTS (RUBY_API_VERSION_CODE < 40100)

/* With RUBY_MN_THREADS=1, a Ruby thread may move to another native thread, which fires an event. */
#if defined(HAVE_RB_INTERNAL_THREAD_ADD_EVENT_HOOK) && RUBY_API_VERSION_CODE >= 30300
#define MEMSCOPE_THREADS_MIGRATE 1
#else
#define MEMSCOPE_THREADS_MIGRATE 0
#endif

/* TRANSIENT_HEAP_TOTAL_SIZE and TRANSIENT_HEAP_BLOCK_SIZE (transient_heap.c), removed in 3.3. */
#define MEMSCOPE_TRANSIENT_HEAP_BYTES (RUBY_API_VERSION_CODE < 30300 ? (size_t)32 << 20 : 0)
#define MEMSCOPE_TRANSIENT_BLOCK_BYTES (RUBY_API_VERSION_CODE < 30300 ? (size_t)32 << 10 : 0)

/*
 * The shape tree and its red-black cache, two mmaps of Init_default_shapes (shape.c): 524,288 shapes of 40 bytes (in
 * 3.2 and 4.1dev, of 32), and since 3.3 a cache of 16,777,216 nodes of 24 bytes.
 */
#define MEMSCOPE_SHAPE_BYTES (RUBY_API_VERSION_CODE < 30300 || RUBY_API_VERSION_CODE >= 40100 ? 32 : 40)
#define MEMSCOPE_SHAPE_LIST_BYTES (RUBY_API_VERSION_CODE >= 30200 ? (size_t)524288 * MEMSCOPE_SHAPE_BYTES : 0)
#define MEMSCOPE_SHAPE_CACHE_BYTES (RUBY_API_VERSION_CODE >= 30300 ? (size_t)16777216 * 24 : 0)

/* The address of a shape. Shape 0 begins the list. Exported by 3.2 to 3.4. */
#ifdef HAVE_RB_SHAPE_GET_SHAPE_BY_ID
const void *rb_shape_get_shape_by_id(unsigned int id);
#endif

/* A struct, whose first member is the address of the list of shapes. Exported by 4.0 and 4.1dev (shape.h). */
#ifdef HAVE_RB_SHAPE_TREE
extern const void *rb_shape_tree;
#endif

/* True if an imemo has the variables of an object that owns it: imemo_fields, from 4.0 on. */
#if RUBY_API_VERSION_CODE >= 40000
#define MEMSCOPE_IS_FIELDS(imemo) (strcmp(MEMSCOPE_IMEMO_NAME(MEMSCOPE_IMEMO_KIND(imemo)), "fields") == 0)
#else
#define MEMSCOPE_IS_FIELDS(imemo) false
#endif

/* True if the object is the code of a method or block. */
#define MEMSCOPE_IS_CODE(object)                                                                                       \
    (RB_BUILTIN_TYPE(object) == RUBY_T_IMEMO && strcmp(MEMSCOPE_IMEMO_NAME(MEMSCOPE_IMEMO_KIND(object)), "iseq") == 0)

/* The object that has this singleton class, from an exported function since 3.2, and from a hidden variable before. */
#ifdef HAVE_RB_CLASS_ATTACHED_OBJECT
#define MEMSCOPE_OWNER_OF_SINGLETON(singleton) rb_class_attached_object(singleton)
#else
#define MEMSCOPE_OWNER_OF_SINGLETON(singleton) rb_attr_get(singleton, rb_intern("__attached__"))
#endif

/*
 * Since 3.4, rb_objspace_reachable_objects_from_root leaves out the table of finalizers, although the GC marks its
 * values (gc/default/default.c, mark_roots). Each value is a hidden Array of an object's finalizers. From 4.0 on, the
 * object's ID is the first element, before the finalizers.
 */
#define MEMSCOPE_ROOTS_LACK_FINALIZERS (RUBY_API_VERSION_CODE >= 30400)
#define MEMSCOPE_FINALIZERS_FOLLOW_ID (RUBY_API_VERSION_CODE >= 40000)

/*
 * The table (id_table.c) in which a class keeps its constants by ID, and the entry that the table holds for a constant
 * (constant.h). A key of the table is an ID's serial number, the only part of an ID that rb_id2str uses. Readers must
 * check these layouts against known constants.
 */
struct memscope_constant {
    int flag, line;
    VALUE value, file;
};
struct memscope_id_item {
    uint32_t key; /* 0 if none */
    int collision;
    const struct memscope_constant *value; /* NULL if none */
};
struct memscope_id_table {
    int capacity, count, used;
    const struct memscope_id_item *items;
};
#define MEMSCOPE_ID_SHIFT 4
#define MEMSCOPE_ID_OF_KEY(key) ((ID)(key) << MEMSCOPE_ID_SHIFT)

/* rb_env_t (vm_core.h): captured values, then three words of Ruby's own. `end` points to the last of these words. */
struct memscope_environment {
    VALUE flags, iseq;
    const VALUE *end, *values;
};
#define MEMSCOPE_ENVIRONMENT_WORDS 3

/* Calls back for each pair of a Hash. Unlike rb_hash_foreach, does not lock the Hash. Exported from 3.1 to 4.1dev. */
#ifdef HAVE_RB_HASH_STLIKE_FOREACH
int rb_hash_stlike_foreach(VALUE hash, int (*callback)(st_data_t key, st_data_t value, st_data_t data), st_data_t data);
#endif

/* Bytes of an object's slot. Before 3.2, all slots are five words. */
#ifdef HAVE_RB_GC_OBJ_SLOT_SIZE
size_t rb_gc_obj_slot_size(VALUE object);
#define MEMSCOPE_SLOT_BYTES(object) rb_gc_obj_slot_size(object)
#else
#define MEMSCOPE_SLOT_BYTES(object) (5 * sizeof(VALUE))
#endif

/* ---- objects' malloc blocks (ruby/heap/object_blocks.c) -------------------------------------------------------- */

/* RHASH_TRANSIENT_FLAG, ROBJ_TRANSIENT_FLAG, RSTRUCT_TRANSIENT_LEN_FLAG: 3.1 and 3.2. */
#define MEMSCOPE_HASH_IS_TRANSIENT (RUBY_API_VERSION_CODE < 30300 ? RUBY_FL_USER12 : 0)
#define MEMSCOPE_OBJECT_IS_TRANSIENT (RUBY_API_VERSION_CODE < 30300 ? RUBY_FL_USER2 : 0)
#define MEMSCOPE_STRUCT_IS_TRANSIENT (RUBY_API_VERSION_CODE < 30300 ? RUBY_FL_USER3 : 0)
#if RUBY_API_VERSION_CODE < 30300
#define MEMSCOPE_ARRAY_IS_TRANSIENT RARRAY_TRANSIENT_FLAG
#else
#define MEMSCOPE_ARRAY_IS_TRANSIENT 0
#endif

/* The variables of a plain object that are not in its slot: an array, or a table if there are too many shapes. */
#if RUBY_API_VERSION_CODE < 40000
#define MEMSCOPE_VARIABLES_OF_OBJECT(object) (ROBJECT(object)->as.heap.ivptr)
#elif RUBY_API_VERSION_CODE < 40100
#define MEMSCOPE_VARIABLES_OF_OBJECT(object) (ROBJECT(object)->as.heap.fields)
#endif

/* OBJ_FIELD_HEAP of an imemo_fields (internal/imemo.h), from 4.0 on. */
#define MEMSCOPE_FIELDS_ARE_OUTSIDE RUBY_FL_USER4

/*
 * True if ruby/re.h and ruby/onigmo.h declare the blocks of a MatchData and a Regexp, which they do not in 4.1dev. An
 * st_table of 4.1dev has its bins and its entries in one block (st.c).
 */
#if RUBY_API_VERSION_CODE < 40100
#define MEMSCOPE_KNOWS_PATTERNS 1
#define MEMSCOPE_BINS_OF_TABLE(table) ((table)->bins)
#else
#define MEMSCOPE_KNOWS_PATTERNS 0
#define MEMSCOPE_BINS_OF_TABLE(table) NULL
#endif

/* Before 3.3, the mark phase pins the values of generic instance variables (variable.c, gen_ivtbl_mark). */
#define MEMSCOPE_GENERIC_VARIABLES_PIN (RUBY_API_VERSION_CODE < 30300)

/* Before 3.3, a proc pins the environment that it captured (proc.c, block_mark). */
#define MEMSCOPE_PROCS_PIN_ENVIRONMENTS (RUBY_API_VERSION_CODE < 30300)

/* Finds an object's generic instance variables, which are in one block. Exported by 3.1 and 3.2. */
#ifdef HAVE_RB_IVAR_GENERIC_IVTBL_LOOKUP
struct gen_ivtbl;
int rb_ivar_generic_ivtbl_lookup(VALUE object, struct gen_ivtbl **variables);
#endif

/* ---- which objects a mark phase has found alive (ruby/sample/object_sampler.c) ---------------------------------- */

/*
 * Returns true if an object is marked. Call at the end of a mark phase. Since 3.4 only the GC's flags for an object
 * show it, by name. Until 4.0, Ruby exports rb_obj_gc_flags, which lists the IDs of the names. From 4.0 on, it exports
 * rb_gc_object_metadata, which returns a list that ends with the name 0. Both functions intern their IDs in their first
 * call, as do their callers below (rb_intern keeps the ID of a literal), so the first call must not be during a GC.
 */
#if defined(HAVE_RB_OBJSPACE_MARKED_OBJECT_P)
int rb_objspace_marked_object_p(VALUE object);
#define MEMSCOPE_KNOWS_MARKED 1
static inline bool memscope_object_is_marked(VALUE object) {
    return rb_objspace_marked_object_p(object) != 0;
}
#elif defined(HAVE_RB_GC_OBJECT_METADATA)
struct rb_gc_object_metadata_entry {
    ID name;
    VALUE value;
};
struct rb_gc_object_metadata_entry *rb_gc_object_metadata(VALUE object);
#define MEMSCOPE_KNOWS_MARKED 1
static inline bool memscope_object_is_marked(VALUE object) {
    const struct rb_gc_object_metadata_entry *entry = rb_gc_object_metadata(object);
    ID marked = rb_intern("marked");

    while (entry->name != 0 && entry->name != marked)
        entry++;
    return entry->name != 0;
}
#elif defined(HAVE_RB_OBJ_GC_FLAGS)
size_t rb_obj_gc_flags(VALUE object, ID *flags, size_t room);
#define MEMSCOPE_KNOWS_MARKED 1
static inline bool memscope_object_is_marked(VALUE object) {
    ID flags[8], marked = rb_intern("marked");
    size_t count = rb_obj_gc_flags(object, flags, 8);

    while (count > 0 && flags[count - 1] != marked)
        count--;
    return count > 0;
}
#else
#define MEMSCOPE_KNOWS_MARKED 0
static inline bool memscope_object_is_marked(VALUE object) {
    return true;
}
#endif

/*
 * A minor GC does not free an old object, even if the object loses its write barrier afterwards
 * (rb_gc_writebarrier_unprotect marks it as uncollectible).
 */
#define MEMSCOPE_IS_OLD(object) ((RBASIC(object)->flags & RUBY_FL_PROMOTED) == RUBY_FL_PROMOTED)

/* Before 3.3, a hook for any GC event makes all allocations take the slow path (gc.c, has_hook). */
#define MEMSCOPE_GC_HOOKS_SLOW_ALLOCATION (RUBY_API_VERSION_CODE < 30300)

/*
 * Returns true if the process crashes when a Ractor begins while internal events are hooked: the hook runs in an
 * allocation or a GC of the new Ractor, which has no control frame yet (Bug #18464, fixed in 3.1.4 and 3.2.3).
 */
static inline bool memscope_hooks_crash_new_ractors(void) {
    int patch = atoi(strrchr(ruby_version, '.') + 1);

    return RUBY_API_VERSION_CODE < 30200 ? patch < 4 : RUBY_API_VERSION_CODE < 30300 && patch < 3;
}

/* Since 3.4, GC.stat counts an object that compaction moves as allocated and freed (gc/default/default.c, gc_move). */
#define MEMSCOPE_MOVES_COUNT_AS_ALLOCATIONS (RUBY_API_VERSION_CODE >= 30400)

/* An event hook sees one Ractor only before 4.0, and all Ractors from 4.0 on. */
#define MEMSCOPE_HOOKS_SEE_ALL_RACTORS (RUBY_API_VERSION_CODE >= 40000)

/* Before 4.0, Ruby switches all hooks off when it frees a Ractor that has ended (Bug #19112). */
#define MEMSCOPE_RACTORS_SWITCH_HOOKS_OFF (RUBY_API_VERSION_CODE < 40000)

/*
 * The first members of rb_thread_t and rb_vm_t from 3.1 to 4.1dev (vm_core.h). `ractors` is the head of a circular list
 * that has one link for each Ractor. Readers must check self, the list and the count.
 */
struct memscope_ruby_list {
    uintptr_t next, previous;
};
struct memscope_ruby_thread {
    struct memscope_ruby_list link;
    VALUE self;
    uintptr_t ractor, vm;
};
struct memscope_ruby_vm {
    VALUE self;
    struct memscope_ruby_list ractors;
    unsigned int ractor_count;
};
