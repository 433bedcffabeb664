#include "../expect.h"
#include "base/shared_room.h"

#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a child writes, its parent reads, at the same address. */
static void test_a_child_writes(void) {
    struct memscope_shared_room room;
    char *known, *expected;
    int status;
    pid_t pid;

    EXPECT(memscope_shared_room_open(&room) == MEMSCOPE_OK);
    known = memscope_shared_room_take(&room, 3, 1);
    expected = known + 16;
    pid = fork();
    if (pid == 0) {
        char *taken = memscope_shared_room_take(&room, 1000, sizeof(uint64_t));

        memset(taken, 'x', 8000);
        strcpy(known, "ok");
        _exit(taken == expected && room.used == 8016 ? 0 : 1);
    }
    EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
    EXPECT(strcmp(known, "ok") == 0 && expected[0] == 'x' && expected[7999] == 'x' && expected[8000] == 0);
    EXPECT(room.used == 3);
    memscope_shared_room_close(&room);
    memscope_shared_room_close(&room);
}

static void test_it_ends(void) {
    struct memscope_shared_room room;
    size_t left;

    EXPECT(memscope_shared_room_open(&room) == MEMSCOPE_OK);
    left = room.size - 16;
    EXPECT(memscope_shared_room_take(&room, 1, 1) == room.base);
    EXPECT(memscope_shared_room_take(&room, left + 1, 1) == NULL &&
           memscope_shared_room_take(&room, SIZE_MAX, 8) == NULL);
    EXPECT(memscope_shared_room_take(&room, 0, 8) == room.base + 16);
    EXPECT(memscope_shared_room_take(&room, left, 1) == room.base + 16 &&
           memscope_shared_room_take(&room, 1, 1) == NULL);
    memscope_shared_room_close(&room);
}

int main(void) {
    test_a_child_writes();
    test_it_ends();
    return 0;
}
