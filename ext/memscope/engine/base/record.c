#include "record_structs.h"

#define MEMBER(record, name, kind) {#name, offsetof(struct memscope_##record, name), MEMSCOPE_MEMBER_##kind},
#define RECORD(name)                                                                                                   \
    static const struct memscope_member name##_members[] = {MEMSCOPE_MEMBERS_##name(MEMBER)};                          \
    static uintptr_t name##_keys[sizeof name##_members / sizeof *name##_members];                                      \
    const struct memscope_record memscope_##name##_record = {                                                          \
        sizeof(struct memscope_##name), sizeof name##_members / sizeof *name##_members, name##_members, name##_keys};
MEMSCOPE_RECORDS(RECORD)
#undef RECORD
#undef MEMBER

#define UNKNOWN_NUMBER MEMSCOPE_UNKNOWN
#define UNKNOWN_SIGNED MEMSCOPE_UNKNOWN_SIGNED
#define UNKNOWN_BOOLEAN MEMSCOPE_UNKNOWN_SIGNED
#define UNKNOWN_REAL NAN
#define UNKNOWN_ROUNDED NAN
#define UNKNOWN_NAME 0
#define UNKNOWN_TEXT                                                                                                   \
    { NULL, 0 }
#define UNKNOWN_SYMBOL                                                                                                 \
    { NULL, 0 }
#define MEMBER(record, name, kind) .name = UNKNOWN_##kind,
#define RECORD(name) const struct memscope_##name memscope_##name##_unknown = {MEMSCOPE_MEMBERS_##name(MEMBER)};
MEMSCOPE_RECORDS(RECORD)
#undef RECORD
#undef MEMBER
