#include "ruby/sample/object_records.h"

#include "base/scratch.h"
#include "ruby/class_names.h"
#include "ruby/heap/page_index.h"
#include "ruby/sample/frame_texts.h"

#include <ruby/debug.h>
#include <string.h>

#include <sys/prctl.h>

#define DEEPEST 32 /* frames */

static struct record {
    VALUE frames[DEEPEST];
    int lines[DEEPEST];
    int depth;       /* frames that are not in `stack` yet */
    uint32_t stack;  /* used node of samples->calls: the outer frames that are text, 0 if none */
    char thread[16]; /* TASK_COMM_LEN */
} * records;

static uint32_t count;

_Static_assert(MEMSCOPE_OBJECT_RECORDS * sizeof *records <= MEMSCOPE_OBJECT_RECORDS_LIMIT, "of the table of records");

bool memscope_object_records_open(void) {
    if (!records)
        records = memscope_lasting_map(MEMSCOPE_OBJECT_RECORDS * sizeof *records);
    return records != NULL;
}

void memscope_object_records_clear(void) {
    count = 0;
}

static void record_thread(char thread[16]) {
    if (prctl(PR_GET_NAME, thread) == 0)
        return;
    thread[0] = '\0';
}

uint16_t memscope_object_record(void) {
    struct record *record = &records[count];

    if (count == MEMSCOPE_OBJECT_RECORDS)
        return 0;
    record->depth = rb_profile_frames(0, DEEPEST, record->frames, record->lines);
    record->stack = 0;
    record_thread(record->thread);
    return (uint16_t)++count;
}

bool memscope_object_records_any(void) {
    return count > 0;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* Goes from the outermost frame inwards. If a String cannot be allocated, the record keeps its texts so far. */
static void find_stack(struct record *record, struct memscope_object_samples *samples) {
    while (record->depth > 0) {
        int index = record->depth - 1;
        uint32_t frame = memscope_frame_text(record->frames[index]);
        uint32_t line = frame == MEMSCOPE_NO_ROOM ? 0 : (uint32_t)record->lines[index];

        record->stack = memscope_call_add(&samples->calls, &samples->texts, record->stack, frame, line);
        record->depth = index;
    }
}

static VALUE find_stacks(VALUE argument) {
    for (uint32_t index = 0; index < count; index++)
        find_stack(&records[index], (struct memscope_object_samples *)argument);
    return Qnil;
}

/* The only error is NoMemoryError: interrupts are not checked here. */
void memscope_object_records_find_texts(struct memscope_object_samples *samples) {
    int error = 0;

    rb_protect(find_stacks, (VALUE)samples, &error);
    if (error)
        rb_set_errinfo(Qnil);
}

static void settle(struct memscope_object_sample *sample, const struct record *record,
                   struct memscope_object_samples *samples) {
    char text[MEMSCOPE_CLASS_TEXT];
    VALUE object = sample->address;

    sample->stack = record->depth > 0 ? MEMSCOPE_NO_ROOM : record->stack;
    memscope_call_retain(&samples->calls, sample->stack);
    sample->pending = 0;
    sample->class_name = (uint16_t)memscope_text_add(
        &samples->texts, text, memscope_is_object(object) ? memscope_write_class_of(text, object) : 0);
    if (record->thread[0] != '\0')
        sample->thread = (uint16_t)memscope_text_add(&samples->texts, record->thread,
                                                     strnlen(record->thread, sizeof record->thread));
}

/* Unsettled samples are among the young ones. */
void memscope_object_records_settle(struct memscope_object_samples *samples) {
    for (uint32_t index = samples->old; index < samples->count; index++) {
        struct memscope_object_sample *sample = &samples->list[index];

        if (sample->pending)
            settle(sample, &records[sample->pending - 1], samples);
    }
    for (uint32_t index = 0; index < count; index++)
        memscope_call_release(&samples->calls, &samples->texts, records[index].stack);
    count = 0;
}

/* ---- within a GC ------------------------------------------------------------------------------------------------- */

void memscope_object_records_mark(void) {
    for (uint32_t index = 0; index < count; index++)
        for (int frame = 0; frame < records[index].depth; frame++)
            rb_gc_mark(records[index].frames[frame]);
}

void memscope_object_records_move(void) {
    for (uint32_t index = 0; index < count; index++)
        for (int frame = 0; frame < records[index].depth; frame++)
            records[index].frames[frame] = rb_gc_location(records[index].frames[frame]);
}

size_t memscope_object_records_bytes(void) {
    return memscope_lasting_resident_bytes(records, MEMSCOPE_OBJECT_RECORDS * sizeof *records);
}
