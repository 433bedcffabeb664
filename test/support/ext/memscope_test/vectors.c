/*
 * Values that the processor holds in its vector registers while other processes stop this one.
 */
#include "memscope_test.h"

#include <stdint.h>
#include <string.h>

#define REGISTERS 8
#define BYTES 32

#if defined(__x86_64__)

/* Loads the upper registers, spins with the GVL, and stores them. */
__attribute__((target("avx"))) static void hold(const unsigned char *from, unsigned char *to, long spins) {
    __asm__ volatile("vmovdqu 0(%1), %%ymm8\n\tvmovdqu 32(%1), %%ymm9\n\t"
                     "vmovdqu 64(%1), %%ymm10\n\tvmovdqu 96(%1), %%ymm11\n\t"
                     "vmovdqu 128(%1), %%ymm12\n\tvmovdqu 160(%1), %%ymm13\n\t"
                     "vmovdqu 192(%1), %%ymm14\n\tvmovdqu 224(%1), %%ymm15\n\t"
                     "1: dec %0\n\tjnz 1b\n\t"
                     "vmovdqu %%ymm8, 0(%2)\n\tvmovdqu %%ymm9, 32(%2)\n\t"
                     "vmovdqu %%ymm10, 64(%2)\n\tvmovdqu %%ymm11, 96(%2)\n\t"
                     "vmovdqu %%ymm12, 128(%2)\n\tvmovdqu %%ymm13, 160(%2)\n\t"
                     "vmovdqu %%ymm14, 192(%2)\n\tvmovdqu %%ymm15, 224(%2)\n\tvzeroupper"
                     : "+r"(spins)
                     : "r"(from), "r"(to)
                     : "memory", "cc", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

static int can_hold(void) {
    return __builtin_cpu_supports("avx");
}

#elif defined(__aarch64__) && defined(__GLIBC__)

#include <sys/auxv.h>

/* The upper half of these registers, and the predicate, are what a system call discards. */
__attribute__((target("+sve"))) static void hold(const unsigned char *from, unsigned char *to, long spins) {
    __asm__ volatile("ptrue p0.b, vl32\n\t"
                     "ld1b z8.b, p0/z, [%1]\n\t"
                     "ld1b z9.b, p0/z, [%2]\n\t"
                     "1: subs %0, %0, #1\n\tb.ne 1b\n\t"
                     "st1b z8.b, p0, [%3]\n\t"
                     "st1b z9.b, p0, [%4]"
                     : "+r"(spins)
                     : "r"(from), "r"(from + BYTES), "r"(to), "r"(to + BYTES)
                     : "memory", "cc", "v8", "v9", "p0");
    memcpy(to + 2 * BYTES, from + 2 * BYTES, (size_t)(REGISTERS - 2) * BYTES);
}

static int can_hold(void) {
    return (getauxval(AT_HWCAP) & HWCAP_SVE) != 0;
}

#else

static void hold(const unsigned char *from, unsigned char *to, long spins) {
    (void)spins;
    memcpy(to, from, (size_t)REGISTERS * BYTES);
}

static int can_hold(void) {
    return 0;
}

#endif

/* Host.vectors_kept?(spins) -> whether the registers were as they should be; true without AVX or SVE. */
static VALUE host_vectors_kept(VALUE self, VALUE spins) {
    unsigned char from[REGISTERS * BYTES], to[REGISTERS * BYTES] = {0};

    if (!can_hold())
        return Qtrue;
    for (size_t index = 0; index < sizeof from; index++)
        from[index] = (unsigned char)(index * 37 + 11);
    hold(from, to, NUM2LONG(spins));
    return memcmp(from, to, sizeof from) == 0 ? Qtrue : Qfalse;
}

void init_vectors(VALUE host) {
    rb_define_singleton_method(host, "vectors_kept?", host_vectors_kept, 1);
}
