/*
 * Finds the objects that compaction cannot move. Ruby records pins only while it compacts, so they are inferred from
 * their causes: a type with `dmark` but no `dcompact`, a finalizer, a root.
 */
#pragma once

#include <ruby.h>

#include "ruby/heap/heap_pins.h"
#include "ruby/heap/page_index.h"
#include "ruby/heap/ruby_heap.h"

/* Called when the extension is loaded: learns this Ruby's Hash layout. */
void memscope_pin_survey_learn(void);

/* Returns true if memscope_table_of_hash is right for this Ruby, as Hashes with known content show. */
bool memscope_knows_hash_tables(void);

/* The state of a survey. pins: the flags to set on the pages of the objects that the current object references. */
struct memscope_pin_survey {
    const struct memscope_heap_listing *listing;
    struct memscope_page_index index;
    struct memscope_heap_pins *found;
    uint8_t pins;
    bool doubtful; /* the current object may be garbage, and sets only MEMSCOPE_PAGE_MAY_PIN */
};

/*
 * Open a survey, visit every object of the listing with the index of its page, and close the survey, which adds the
 * roots. A refused survey ignores visits. Calls the mark functions of objects that pin others, also of C extensions, so
 * no other Ractor may be alive, and an object that a sweep in progress may free must be visited as doubtful. Takes 9 to
 * 16 ms per million objects with the walk, and allocates in scratch only. Caller holds the GVL, or is the only thread
 * of a forked child.
 */
void memscope_pin_survey_open(struct memscope_pin_survey *survey, const struct memscope_heap_listing *listing,
                              struct memscope_scratch *scratch, struct memscope_heap_pins *pins);
void memscope_pin_survey_visit(struct memscope_pin_survey *survey, VALUE object, size_t page);
void memscope_pin_survey_close(struct memscope_pin_survey *survey);
