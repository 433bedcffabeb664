#include "base/shared_room.h"

#include <sys/mman.h>

/* Far more than any answer takes. Smaller sizes are for processes whose address space is limited (RLIMIT_AS). */
#define MAX_BYTES ((size_t)256 << 20)
#define MIN_BYTES ((size_t)16 << 20)

enum memscope_status memscope_shared_room_open(struct memscope_shared_room *room) {
    for (size_t size = MAX_BYTES; size >= MIN_BYTES; size /= 2) {
        void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        *room = (struct memscope_shared_room){.base = base, .size = size};
        if (base != MAP_FAILED)
            return MEMSCOPE_OK;
    }
    *room = (struct memscope_shared_room){.base = NULL};
    return MEMSCOPE_NO_MEMORY;
}

void *memscope_shared_room_take(struct memscope_shared_room *room, size_t count, size_t item_size) {
    size_t start = (room->used + 15) & ~(size_t)15;

    if (start > room->size || count > (room->size - start) / item_size)
        return NULL;
    room->used = start + count * item_size;
    return room->base + start;
}

void memscope_shared_room_close(struct memscope_shared_room *room) {
    if (room->base != NULL)
        munmap(room->base, room->size);
    *room = (struct memscope_shared_room){.base = NULL};
}
