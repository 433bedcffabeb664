/* What Init_memscope calls, under the GVL: each defines the methods of one part of Memscope::Native. */
#ifndef MEMSCOPE_INIT_H
#define MEMSCOPE_INIT_H

/* Beside each other in the library, so that loading it makes few of its pages resident. */
#define AT_LOAD __attribute__((cold))

AT_LOAD void Init_memscope_allocator(void);
AT_LOAD void Init_memscope_process(void);
AT_LOAD void Init_memscope_cgroup(void);
AT_LOAD void Init_memscope_snapshot(void);
AT_LOAD void Init_memscope_ruby_heap(void);
AT_LOAD void Init_memscope_heap_pins(void);
AT_LOAD void Init_memscope_heap_compaction(void);
AT_LOAD void Init_memscope_ruby_heap_binding(void);
AT_LOAD void Init_memscope_ledger(void);
AT_LOAD void Init_memscope_arenas(void);
AT_LOAD void Init_memscope_levers(void);
AT_LOAD void Init_memscope_program(void);
AT_LOAD void Init_memscope_malloc_profile(void);
AT_LOAD void Init_memscope_malloc_profile_tags(void);
AT_LOAD void Init_memscope_malloc_profile_binding(void);

#endif
