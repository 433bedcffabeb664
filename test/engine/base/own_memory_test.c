#include "../expect.h"
#include "base/own_memory.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(void) {
    struct memscope_own_memory memory;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *mapped = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t addresses[600], values[600], seen = 0;

    EXPECT(mapped != MAP_FAILED);
    memset(mapped, 0x5a, 4 * page);
#ifdef __linux__
    EXPECT(memscope_own_memory_open(&memory) == MEMSCOPE_OK);
    EXPECT(memscope_own_memory_read(&memory, (uintptr_t)mapped, &seen, sizeof seen));
    EXPECT(seen == (uintptr_t)0x5a5a5a5a5a5a5a5a);

    EXPECT(munmap(mapped + page, page) == 0);
    EXPECT(mprotect(mapped + 3 * page, page, PROT_NONE) == 0);
    EXPECT(!memscope_own_memory_read(&memory, (uintptr_t)mapped + page, &seen, sizeof seen));
    EXPECT(!memscope_own_memory_read(&memory, (uintptr_t)mapped + page - 4, &seen, sizeof seen));
    EXPECT(!memscope_own_memory_read(&memory, 0, &seen, sizeof seen));

    for (size_t index = 0; index < 600; index++)
        addresses[index] = (uintptr_t)mapped + (index % 3) * page; /* the second of three is a hole */
    memset(values, 1, sizeof values);
    memscope_own_memory_read_each(&memory, addresses, 600, sizeof values[0], values);
    for (size_t index = 0; index < 600; index++)
        EXPECT(values[index] == (index % 3 == 1 ? 0 : (uintptr_t)0x5a5a5a5a5a5a5a5a));
    memscope_own_memory_close(&memory);
#else
    EXPECT(memscope_own_memory_open(&memory) == MEMSCOPE_UNSUPPORTED);
    addresses[0] = (uintptr_t)mapped;
    memscope_own_memory_read_each(&memory, addresses, 1, sizeof values[0], values);
    EXPECT(values[0] == 0 && !memscope_own_memory_read(&memory, (uintptr_t)mapped, &seen, sizeof seen));
#endif
    return 0;
}
