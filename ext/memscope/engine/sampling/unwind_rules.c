#include "sampling/unwind_rules.h"

#include <string.h>

/* DWARF register numbers of the x86-64 psABI (figure 3.36), where the return address counts as a register. */
enum { RBP = 6, RSP = 7, RETURN_ADDRESS = 16 };

#define WORD 8
#define REMEMBERED_LIMIT 8
#define CFA_LIMIT (1 << 23)
#define SAVED_LIMIT (1 << 16)

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

/* Reads bytes until it fails: past the end, or at an unknown value. */
struct cursor {
    const uint8_t *at, *end;
    bool failed;
};

static void fail(struct cursor *cursor) {
    cursor->failed = true;
    cursor->at = cursor->end;
}

static const uint8_t *take(struct cursor *cursor, uint64_t size) {
    const uint8_t *taken = cursor->at;

    if ((uint64_t)(cursor->end - cursor->at) < size) {
        fail(cursor);
        return NULL;
    }
    cursor->at += size;
    return taken;
}

/* Little-endian, at most 8 bytes. */
static uint64_t take_number(struct cursor *cursor, unsigned size) {
    const uint8_t *bytes = take(cursor, size);
    uint64_t number = 0;

    for (unsigned index = 0; bytes && index < size; index++)
        number |= (uint64_t)bytes[index] << 8 * index;
    return number;
}

static uint8_t take_byte(struct cursor *cursor) {
    return (uint8_t)take_number(cursor, 1);
}

/* LEB128. More than 63 bits fail. Sets *sign to the bits above the number's, if it is read as a signed one. */
static uint64_t take_leb128(struct cursor *cursor, uint64_t *sign) {
    uint64_t number = 0;

    for (unsigned shift = 0; shift < 63; shift += 7) {
        uint8_t byte = take_byte(cursor);

        number |= (uint64_t)(byte & 0x7f) << shift;
        *sign = byte & 0x40 ? UINT64_MAX << (shift + 7) : 0;
        if (!(byte & 0x80))
            return number;
    }
    fail(cursor);
    return *sign = 0;
}

static uint64_t take_unsigned(struct cursor *cursor) {
    uint64_t sign;

    return take_leb128(cursor, &sign);
}

static int64_t take_signed(struct cursor *cursor) {
    uint64_t sign, number = take_leb128(cursor, &sign);

    return (int64_t)(number | sign);
}

/* Compilers write small factors. Larger ones fail, so that no product overflows. */
static int64_t product(struct cursor *cursor, int64_t factor, int64_t other) {
    if (factor < -CFA_LIMIT || factor > CFA_LIMIT || other < -CFA_LIMIT || other > CFA_LIMIT) {
        fail(cursor);
        return 0;
    }
    return factor * other;
}

/* ---- rows: where the caller's registers are --------------------------------------------------------------------- */

struct saved {
    enum { IN_REGISTER, AT_CFA, NOWHERE, ELSEWHERE } where;
    int64_t offset; /* from the CFA, for AT_CFA */
};

struct row {
    enum { FROM_OTHER, FROM_RSP, FROM_RBP } base; /* of the CFA */
    int64_t cfa;
    struct saved rbp, rsp, return_address;
};

/* The contents of a CIE, and the state while its instructions and those of an FDE are run. */
struct program {
    int64_t code_factor, data_factor;
    bool signal;
    struct row row, initial, remembered[REMEMBERED_LIMIT];
    unsigned depth;
    uint64_t location, distance;
};

/* Returns NULL for a register that no rule needs. */
static struct saved *place_of(struct row *row, uint64_t number) {
    return number == RBP              ? &row->rbp
           : number == RSP            ? &row->rsp
           : number == RETURN_ADDRESS ? &row->return_address
                                      : NULL;
}

static void save(struct program *program, uint64_t number, struct saved saved) {
    struct saved *place = place_of(&program->row, number);

    if (place)
        *place = saved;
}

static void restore(struct program *program, uint64_t number) {
    struct saved *initial = place_of(&program->initial, number);

    if (initial)
        save(program, number, *initial);
}

static void base_on(struct program *program, uint64_t number) {
    program->row.base = number == RSP ? FROM_RSP : number == RBP ? FROM_RBP : FROM_OTHER;
}

static void advance(struct program *program, struct cursor *cursor, uint64_t delta) {
    program->location += (uint64_t)product(cursor, (int64_t)delta, program->code_factor);
}

static void remember(struct program *program, struct cursor *cursor) {
    if (program->depth == REMEMBERED_LIMIT)
        fail(cursor);
    else
        program->remembered[program->depth++] = program->row;
}

static void recall(struct program *program, struct cursor *cursor) {
    if (program->depth == 0)
        fail(cursor);
    else
        program->row = program->remembered[--program->depth];
}

/* ---- call frame instructions: DWARF 5, section 6.4.2 and table 7.29 --------------------------------------------- */

/* The instructions that compilers and libraries in assembly use on x86-64. Any other one needs a full unwinder. */
enum {
    ADVANCE_LOC = 0x40, /* the first three have an operand in their lower 6 bits */
    OFFSET = 0x80,
    RESTORE = 0xc0,
    NOP = 0x00,
    ADVANCE_LOC1 = 0x02,
    ADVANCE_LOC2 = 0x03,
    ADVANCE_LOC4 = 0x04,
    UNDEFINED = 0x07,
    REGISTER = 0x09,
    REMEMBER_STATE = 0x0a,
    RESTORE_STATE = 0x0b,
    DEF_CFA = 0x0c,
    DEF_CFA_REGISTER = 0x0d,
    DEF_CFA_OFFSET = 0x0e,
    DEF_CFA_EXPRESSION = 0x0f,
    EXPRESSION = 0x10,
    OFFSET_EXTENDED_SF = 0x11,
    GNU_ARGS_SIZE = 0x2e
};

static void save_at(struct program *program, struct cursor *cursor, uint64_t number, int64_t factored) {
    save(program, number, (struct saved){AT_CFA, product(cursor, factored, program->data_factor)});
}

/* Runs an instruction whose operands follow its code. */
static void run_long(struct program *program, struct cursor *cursor, uint8_t code) {
    uint64_t number;

    switch (code) {
    case NOP:
        break;
    case ADVANCE_LOC1:
        advance(program, cursor, take_number(cursor, 1));
        break;
    case ADVANCE_LOC2:
        advance(program, cursor, take_number(cursor, 2));
        break;
    case ADVANCE_LOC4:
        advance(program, cursor, take_number(cursor, 4));
        break;
    case UNDEFINED:
        save(program, take_unsigned(cursor), (struct saved){.where = NOWHERE});
        break;
    case REGISTER:
        save(program, take_unsigned(cursor), (struct saved){.where = ELSEWHERE});
        take_unsigned(cursor);
        break;
    case REMEMBER_STATE:
        remember(program, cursor);
        break;
    case RESTORE_STATE:
        recall(program, cursor);
        break;
    case DEF_CFA_REGISTER:
        base_on(program, take_unsigned(cursor));
        break;
    case DEF_CFA:
        base_on(program, take_unsigned(cursor));
        /* fall through */
    case DEF_CFA_OFFSET:
        program->row.cfa = (int64_t)take_unsigned(cursor);
        break;
    case DEF_CFA_EXPRESSION:
        program->row.base = FROM_OTHER;
        take(cursor, take_unsigned(cursor));
        break;
    case EXPRESSION:
        save(program, take_unsigned(cursor), (struct saved){.where = ELSEWHERE});
        take(cursor, take_unsigned(cursor));
        break;
    case OFFSET_EXTENDED_SF:
        number = take_unsigned(cursor);
        save_at(program, cursor, number, take_signed(cursor));
        break;
    case GNU_ARGS_SIZE:
        take_unsigned(cursor);
        break;
    default:
        fail(cursor);
    }
}

/*
 * Runs to the end, or until `location` reaches `distance`, since later rows are for later instructions. Returns false
 * on failure.
 */
static bool run(struct program *program, struct cursor *cursor) {
    while (cursor->at < cursor->end && program->location < program->distance) {
        uint8_t code = take_byte(cursor), operand = code & 0x3f;

        switch (code & 0xc0) {
        case ADVANCE_LOC:
            advance(program, cursor, operand);
            break;
        case OFFSET:
            save_at(program, cursor, operand, (int64_t)take_unsigned(cursor));
            break;
        case RESTORE:
            restore(program, operand);
            break;
        default:
            run_long(program, cursor, code);
        }
    }
    return !cursor->failed;
}

/* ---- CIEs and FDEs ---------------------------------------------------------------------------------------------- */

/* Opens an entry of .eh_frame (a CIE or an FDE), past its length. */
static struct cursor open_entry(const uint8_t *entry, struct memscope_range readable) {
    struct cursor cursor = {entry, (const uint8_t *)readable.end, false};
    uint64_t length;

    if ((uintptr_t)entry < readable.start || (uintptr_t)entry > readable.end) {
        cursor.end = cursor.at;
        fail(&cursor);
        return cursor;
    }
    length = take_number(&cursor, 4);
    if (length == UINT32_MAX || length > (uint64_t)(cursor.end - cursor.at))
        fail(&cursor);
    else
        cursor.end = cursor.at + length;
    return cursor;
}

enum { ABSOLUTE_32 = 0x03, RELATIVE_32 = 0x1b, FORMAT = 0x0f };

static unsigned pointer_size(uint8_t encoding) {
    unsigned format = encoding & FORMAT;

    return format == 0x02 || format == 0x0a ? 2 : format == 0x03 || format == 0x0b ? 4 : WORD;
}

/* Reads the augmentation data that letters such as "PLR" describe. Fails unless FDEs hold 32-bit relative addresses. */
static void read_augmentation(struct program *program, struct cursor *cursor, const char *letters) {
    uint8_t encoding = 0;

    for (; *letters; letters++) {
        if (*letters == 'R')
            encoding = take_byte(cursor);
        else if (*letters == 'L')
            take_byte(cursor);
        else if (*letters == 'P')
            take(cursor, pointer_size(take_byte(cursor)));
        else if (*letters == 'S')
            program->signal = true;
        else
            fail(cursor);
    }
    if (encoding != RELATIVE_32)
        fail(cursor);
}

/* Reads a CIE and runs its initial instructions, which set the initial row. */
static bool read_common(struct program *program, const uint8_t *entry, struct memscope_range readable) {
    struct cursor cursor = open_entry(entry, readable), augmentation;
    const char *letters;
    const uint8_t *data;
    uint64_t length;
    uint8_t version;

    if (take_number(&cursor, 4) != 0)
        return false;
    version = take_byte(&cursor);
    letters = (const char *)cursor.at;
    if ((version != 1 && version != 3) || !memchr(letters, '\0', (size_t)(cursor.end - cursor.at)) || *letters != 'z')
        return false;
    take(&cursor, strlen(letters) + 1);
    program->code_factor = (int64_t)take_unsigned(&cursor);
    program->data_factor = take_signed(&cursor);
    if ((version == 1 ? take_byte(&cursor) : take_unsigned(&cursor)) != RETURN_ADDRESS)
        return false;
    length = take_unsigned(&cursor);
    data = take(&cursor, length);
    if (!data)
        return false;
    augmentation = (struct cursor){data, data + length, false};
    read_augmentation(program, &augmentation, letters + 1);
    program->distance = UINT64_MAX;
    if (augmentation.failed || !run(program, &cursor))
        return false;
    program->initial = program->row;
    return true;
}

static bool fits(int64_t offset, int64_t limit) {
    return offset % WORD == 0 && offset > -limit && offset < limit;
}

/* Without a rule for rsp, the caller's rsp is the CFA. A rule means that the function has switched stacks. */
static struct memscope_unwind_rule rule_of_row(const struct row *row) {
    const struct saved *rbp = &row->rbp, *returns = &row->return_address;
    struct memscope_unwind_rule rule = {.kind = MEMSCOPE_UNWIND_OTHER};

    if (returns->where == NOWHERE) {
        rule.kind = MEMSCOPE_UNWIND_OUTERMOST;
    } else if (row->base != FROM_OTHER && row->rsp.where == IN_REGISTER && row->cfa > 0 && fits(row->cfa, CFA_LIMIT) &&
               returns->where == AT_CFA && returns->offset == -WORD &&
               (rbp->where == IN_REGISTER ||
                (rbp->where == AT_CFA && fits(rbp->offset, SAVED_LIMIT) && rbp->offset < 0))) {
        rule.kind = row->base == FROM_RSP ? MEMSCOPE_UNWIND_BY_RSP : MEMSCOPE_UNWIND_BY_RBP;
        rule.cfa = (int32_t)row->cfa;
        rule.rbp = (int32_t)rbp->offset;
    }
    return rule;
}

/*
 * An FDE holds its length, the distance back to its CIE, its function's address and size, augmentation data, and its
 * instructions.
 */
struct memscope_unwind_rule memscope_unwind_rule_parse(const uint8_t *description, struct memscope_range readable,
                                                       uint64_t distance) {
    const struct memscope_unwind_rule other = {.kind = MEMSCOPE_UNWIND_OTHER};
    struct cursor cursor = open_entry(description, readable);
    const uint8_t *link = cursor.at;
    struct program program = {0};
    uint64_t back = take_number(&cursor, 4), size;

    if (cursor.failed || back == 0 || back > (uintptr_t)link - readable.start ||
        !read_common(&program, link - back, readable))
        return other;
    take(&cursor, 4);
    size = take_number(&cursor, 4);
    take(&cursor, take_unsigned(&cursor));
    if (cursor.failed || distance == 0)
        return other;
    if (distance > size)
        return (struct memscope_unwind_rule){.kind = MEMSCOPE_UNWIND_UNDESCRIBED};
    program.location = 0;
    program.distance = distance;
    return run(&program, &cursor) && !program.signal ? rule_of_row(&program.row) : other;
}

/* ---- the unwind index of a loaded object ------------------------------------------------------------------------ */

/* An entry of the binary search table, sorted by function. Both fields are byte offsets from the start of the index. */
struct entry {
    int32_t function, description;
};

struct index {
    uint8_t version, eh_frame_encoding, count_encoding, table_encoding;
    int32_t eh_frame;
    uint32_t count;
    struct entry table[];
};

/* Returns true if the index has the form that GNU ld, gold, lld and mold write. */
static bool is_searchable(const struct index *index) {
    return index->version == 1 && index->eh_frame_encoding == RELATIVE_32 && index->count_encoding == ABSOLUTE_32 &&
           index->table_encoding == 0x3b && index->count > 0;
}

/*
 * Returns true if the table ends inside the object. If not, even a full unwinder must not run: it would read past the
 * object.
 */
static bool is_whole(const struct index *index, uintptr_t end) {
    uintptr_t table = (uintptr_t)index->table;

    return end >= table && index->count <= (end - table) / sizeof *index->table;
}

static bool begins_by(const void *entry, uint64_t position) {
    return ((const struct entry *)entry)->function <= (int64_t)position;
}

/* The last entry whose function begins at or before `position`, NULL if all begin after it. */
static const struct entry *search(const struct index *index, int64_t position) {
    size_t after = memscope_position(index->table, index->count, sizeof *index->table, (uint64_t)position, begins_by);

    return after > 0 ? &index->table[after - 1] : NULL;
}

struct memscope_unwind_rule memscope_unwind_rule_of(const struct memscope_loaded_object *object, uintptr_t address) {
    const struct index *index = (const struct index *)(const void *)object->unwind_index;
    struct memscope_unwind_rule rule = {.kind = MEMSCOPE_UNWIND_OTHER};
    const struct entry *entry;
    uintptr_t function;

    if (!memscope_range_contains(object->extent, (uintptr_t)index) || !is_searchable(index))
        return rule;
    rule.kind = MEMSCOPE_UNWIND_UNDESCRIBED;
    entry = is_whole(index, object->extent.end) ? search(index, (int64_t)(address - 1 - (uintptr_t)index)) : NULL;
    if (!entry)
        return rule;
    function = (uintptr_t)index + (uintptr_t)(intptr_t)entry->function;
    rule = memscope_unwind_rule_parse((const uint8_t *)index + entry->description, object->extent, address - function);
    rule.function = rule.kind == MEMSCOPE_UNWIND_UNDESCRIBED ? 0 : function;
    rule.description = entry->description;
    return rule;
}
