/* The assertion of the C tests: never compiled out, and prints file and line. */
#ifndef EXPECT_H
#define EXPECT_H

#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition);                                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Prints why the rest of a test is not run here, and exits with success. */
#define SKIP(reason)                                                                                                   \
    do {                                                                                                               \
        printf("skipped: %s\n", reason);                                                                               \
        exit(0);                                                                                                       \
    } while (0)

#endif
