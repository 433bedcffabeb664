#include "ruby/heap/pin_survey.h"
#include "ruby/heap/heap_fit.h"
#include "ruby/heap/roots.h"
#include "ruby/ruby_private.h"

#include <string.h>

static void mark_page(struct memscope_pin_survey *survey, VALUE object, uint8_t pins) {
    size_t page = RB_SPECIAL_CONST_P(object) ? MEMSCOPE_NO_PAGE : memscope_page_of(&survey->index, object);

    if (page != MEMSCOPE_NO_PAGE)
        survey->found->pages[page] |= survey->doubtful ? MEMSCOPE_PAGE_MAY_PIN : pins;
}

/* ---- causes of pins -------------------------------------------------------------------------------------------- */

static void mark_referred(VALUE object, void *data) {
    struct memscope_pin_survey *survey = data;

    mark_page(survey, object, survey->pins);
}

static void mark_root(const char *category, VALUE object, void *data) {
    mark_page(data, object, MEMSCOPE_PAGE_MAY_PIN);
}

static void mark_references(struct memscope_pin_survey *survey, VALUE object, uint8_t pins) {
    survey->pins = pins;
    rb_objspace_reachable_objects_from(object, mark_referred, survey);
}

/* Before Ruby 3.3, a proc pins the environment that it captured, and nothing else (proc.c, block_mark). */
static void mark_environment(VALUE object, void *data) {
    if (!RB_SPECIAL_CONST_P(object) && MEMSCOPE_IS_ENVIRONMENT(object))
        mark_page(data, object, MEMSCOPE_PAGE_PINS);
}

/* A type of a C extension may have no name. */
static bool is_named(const rb_data_type_t *type, const char *name) {
    return type->wrap_struct_name != NULL && strcmp(type->wrap_struct_name, name) == 0;
}

/*
 * rb_gc_mark pins, unlike rb_gc_mark_movable, which only types that can update their references may use. Such a type
 * may still pin some of its references: threads and fibers pin everything on their stacks, enumerators nothing
 * (enumerator.c).
 */
static uint8_t pins_of_data(const rb_data_type_t *type) {
    if (type->function.dmark == NULL || is_named(type, "enumerator"))
        return 0;
#if RUBY_API_VERSION_CODE >= 30300
    if (type->flags & RUBY_TYPED_DECL_MARKING)
        return 0;
#endif
    return type->function.dcompact == NULL ? MEMSCOPE_PAGE_PINS : MEMSCOPE_PAGE_MAY_PIN;
}

/* Never calls the mark function of an object that may be garbage, whose data may refer to freed memory. */
static void survey_data(struct memscope_pin_survey *survey, VALUE object) {
    uint8_t pins;

    if (survey->doubtful)
        return;
    if (!RTYPEDDATA_P(object)) {
        if (MEMSCOPE_MARK_OF_UNTYPED_DATA(object) != NULL)
            mark_references(survey, object, MEMSCOPE_PAGE_PINS);
        return;
    }
    if (is_named(RTYPEDDATA_TYPE(object), "proc")) {
        if (MEMSCOPE_PROCS_PIN_ENVIRONMENTS)
            rb_objspace_reachable_objects_from(object, mark_environment, survey);
        return;
    }
    pins = pins_of_data(RTYPEDDATA_TYPE(object));
    if (pins != 0)
        mark_references(survey, object, pins);
}

/* Since 3.2 a String may point into the slot of another, which pins that other String (gc.c, gc_mark_children). */
static void mark_shared_root(struct memscope_pin_survey *survey, VALUE string) {
    VALUE root;

    if (RUBY_API_VERSION_CODE < 30200 || !RB_FL_TEST_RAW(string, RSTRING_NOEMBED) ||
        !RB_FL_TEST_RAW(string, RUBY_ELTS_SHARED))
        return;
    root = RSTRING(string)->as.heap.aux.shared;
    if (!RB_SPECIAL_CONST_P(root) && root != 0 && !RB_FL_TEST_RAW(root, RSTRING_NOEMBED))
        mark_page(survey, root, MEMSCOPE_PAGE_PINS);
}

/* ---- hashes that compare by identity: their keys are pinned ---------------------------------------------------- */

/* The st_table type of Hashes that compare by identity, or NULL if this Ruby's Hash layout is not recognised. */
static const struct st_hash_type *identity_type;

bool memscope_knows_hash_tables(void) {
    return identity_type != NULL;
}

static bool compares_by_identity(VALUE hash) {
    const st_table *table = memscope_table_of_hash(hash);

    return table != NULL && table->type == identity_type;
}

/* Only a larger Hash has an st_table, whose type differs if the Hash compares by identity. */
static void learn_identity_type(void) {
    enum { ENTRIES = 20 };
    VALUE small = rb_hash_new(), large = rb_hash_new();
    VALUE identity = rb_funcall(rb_hash_new(), rb_intern("compare_by_identity"), 0);
    const st_table *plain_table, *identity_table;

    for (int entry = 0; entry < ENTRIES; entry++) {
        rb_hash_aset(large, INT2FIX(entry), Qtrue);
        rb_hash_aset(identity, INT2FIX(entry), Qtrue);
    }
    rb_hash_aset(small, INT2FIX(0), Qtrue);
    plain_table = memscope_table_of_hash(large);
    identity_table = memscope_table_of_hash(identity);
    if (memscope_table_of_hash(small) != NULL || plain_table == NULL || identity_table == NULL)
        return;
    if (plain_table->num_entries == ENTRIES && identity_table->num_entries == ENTRIES &&
        plain_table->type != identity_table->type)
        identity_type = identity_table->type;
    RB_GC_GUARD(large);
    RB_GC_GUARD(identity);
}

static int mark_key(st_data_t key, st_data_t value, st_data_t data) {
    mark_page((struct memscope_pin_survey *)data, (VALUE)key, MEMSCOPE_PAGE_PINS);
    return ST_CONTINUE;
}

/* ---- blocks that are written in C ------------------------------------------------------------------------------ */

static int c_block_kind = -1; /* imemo_ifunc, -1 if this Ruby does not name its kinds */

/* ---- survey --------------------------------------------------------------------------------------------------- */

static int mark_variable(ID name, VALUE value, st_data_t data) {
    mark_page((struct memscope_pin_survey *)data, value, MEMSCOPE_PAGE_PINS);
    return ST_CONTINUE;
}

/* Ruby pins the data of a block written in C, which may or may not be an object (gc_mark_imemo in gc.c, imemo.c). */
static void survey_internal(struct memscope_pin_survey *survey, VALUE object) {
    if (MEMSCOPE_IMEMO_KIND(object) == c_block_kind)
        mark_references(survey, object, MEMSCOPE_PAGE_PINS);
}

static void survey_object(struct memscope_pin_survey *survey, VALUE object) {
    switch (RB_BUILTIN_TYPE(object)) {
    case RUBY_T_SYMBOL: /* a dynamic Symbol is pinned once it has an ID, which no header declares */
        mark_page(survey, object, MEMSCOPE_PAGE_MAY_PIN);
        break;
    case RUBY_T_STRING:
        mark_shared_root(survey, object);
        break;
    case RUBY_T_HASH:
        if (identity_type == NULL) /* any Hash may compare by identity */
            mark_references(survey, object, MEMSCOPE_PAGE_MAY_PIN);
        else if (compares_by_identity(object))
            st_foreach((st_table *)memscope_table_of_hash(object), mark_key, (st_data_t)survey);
        break;
    case RUBY_T_DATA:
        survey_data(survey, object);
        break;
    case RUBY_T_IMEMO:
        survey_internal(survey, object);
        break;
    case RUBY_T_ARRAY: /* the table of finalizers pins its values, which are not references of a root */
        if (MEMSCOPE_ROOTS_LACK_FINALIZERS && memscope_may_be_finalizers(object))
            mark_page(survey, object, MEMSCOPE_PAGE_MAY_PIN);
        break;
    default:
        break;
    }
    if (MEMSCOPE_GENERIC_VARIABLES_PIN && MEMSCOPE_HAS_GENERIC_VARIABLES(object) &&
        RB_BUILTIN_TYPE(object) != RUBY_T_IMEMO)
        rb_ivar_foreach(object, mark_variable, (st_data_t)survey);
    if (RB_FL_TEST_RAW(object, RUBY_FL_FINALIZE)) /* the table of finalizers is keyed by address */
        mark_page(survey, object, MEMSCOPE_PAGE_PINS);
}

static void insert_slot_size(struct memscope_heap_pins *pins, size_t slot_bytes) {
    size_t at = 0;

    while (at < pins->slot_sizes && pins->resizes[at].slot_bytes < slot_bytes)
        at++;
    if (at < pins->slot_sizes && pins->resizes[at].slot_bytes == slot_bytes)
        return;
    if (pins->slot_sizes == MEMSCOPE_SLOT_SIZES)
        return;
    memmove(&pins->resizes[at + 1], &pins->resizes[at], (pins->slot_sizes - at) * sizeof pins->resizes[at]);
    pins->resizes[at] = (struct memscope_resizes){.slot_bytes = slot_bytes};
    pins->slot_sizes++;
}

/*
 * The slot size that compaction would use, or the smallest for an object too large for every slot (gc.c,
 * gc_compact_destination_pool).
 */
static struct memscope_resizes *fitting_size(struct memscope_heap_pins *pins, size_t bytes) {
    for (size_t at = 0; at < pins->slot_sizes; at++)
        if (bytes <= pins->resizes[at].slot_bytes)
            return &pins->resizes[at];
    return &pins->resizes[0];
}

/* Counts an object that would leave its slot size, and returns true if it would. */
static bool count_resize(struct memscope_heap_pins *pins, VALUE object, struct memscope_resizes *own) {
    size_t bytes = memscope_fitting_bytes(object);
    struct memscope_resizes *fitting;

    if (bytes == 0)
        return false;
    if (bytes == MEMSCOPE_UNKNOWN_FIT) {
        own->source++;
        own->unplaced++;
        return true;
    }
    fitting = fitting_size(pins, bytes);
    if (fitting == own)
        return false;
    own->source++;
    fitting->target++;
    return true;
}

void memscope_pin_survey_open(struct memscope_pin_survey *survey, const struct memscope_heap_listing *listing,
                              struct memscope_scratch *scratch, struct memscope_heap_pins *pins) {
    *survey = (struct memscope_pin_survey){.listing = listing, .found = pins};
    memset(pins, 0, sizeof *pins);
    pins->pages = memscope_scratch_take(scratch, listing->count);
    if (!MEMSCOPE_FOLLOWS_REFERENCES)
        pins->refusal = "references_unexported";
    else if (pins->pages == NULL || !memscope_page_index_open(&survey->index, listing, scratch))
        pins->refusal = "no_memory";
    if (pins->refusal != NULL) {
        pins->pages = NULL;
        return;
    }
    memset(pins->pages, 0, listing->count);
    for (size_t index = 0; index < listing->count; index++)
        insert_slot_size(pins, listing->pages[index].slot_bytes);
}

void memscope_pin_survey_visit(struct memscope_pin_survey *survey, VALUE object, size_t page) {
    struct memscope_heap_pins *pins = survey->found;

    if (pins->refusal != NULL)
        return;
    survey_object(survey, object);
    if (count_resize(pins, object, fitting_size(pins, survey->listing->pages[page].slot_bytes)))
        pins->pages[page] |= MEMSCOPE_PAGE_RESIZES;
}

void memscope_pin_survey_close(struct memscope_pin_survey *survey) {
    if (survey->found->refusal != NULL)
        return;
    survey->doubtful = false;
    rb_objspace_reachable_objects_from_root(mark_root, survey);
}

void memscope_pin_survey_learn(void) {
    learn_identity_type();
    c_block_kind = memscope_imemo_kind("ifunc");
}
