/* Functions that Init_memscope calls under the GVL: each defines the methods of one part of Memscope::Native. */
#ifndef MEMSCOPE_INIT_H
#define MEMSCOPE_INIT_H

void Init_memscope_allocator(void);
void Init_memscope_process(void);
void Init_memscope_sharing(void);
void Init_memscope_cgroup(void);
void Init_memscope_snapshot(void);
void Init_memscope_ruby_heap(void);
void Init_memscope_object_blocks(void);
void Init_memscope_census(void);
void Init_memscope_heap_graph(void);
void Init_memscope_heap_growth(void);
void Init_memscope_dump(void);
void Init_memscope_ledger(void);
void Init_memscope_arenas(void);
void Init_memscope_levers(void);
void Init_memscope_termination(void);
void Init_memscope_profile_control(void);
void Init_memscope_profile_reading(void);
void Init_memscope_object_profile(void);
void Init_memscope_tags(void);
void Init_memscope_measurement(void);
void Init_memscope_owners(void);
void Init_memscope_history(void);
void Init_memscope_black_box(void);
void Init_memscope_verdict(void);
void Init_memscope_attach(void);
void Init_memscope_copy(void);

#endif
