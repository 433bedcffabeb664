#include "../expect.h"
#include "record_structs.h"

static void test_records_of_which_nothing_is_known(void) {
    EXPECT(memscope_growth_row_unknown.count == MEMSCOPE_UNKNOWN_SIGNED);
    EXPECT(memscope_growth_row_unknown.new_bytes == MEMSCOPE_UNKNOWN);
    EXPECT(memscope_graph_totals_unknown.walked_in.start == NULL && isnan(memscope_graph_totals_unknown.pause_ms));
    EXPECT(memscope_class_row_unknown.name == 0);
    EXPECT(isnan(memscope_verdict_figures_unknown.bytes_per_hour));
}

static void test_members_in_a_larger_struct(void) {
    struct {
        bool before;
        MEMSCOPE_EMBED(growth_row);
    } larger = {.before = true, .new_count = 3};

    larger.growth_row.bytes = -5;
    EXPECT(larger.before && larger.bytes == -5 && larger.growth_row.new_count == 3);
}

int main(void) {
    test_records_of_which_nothing_is_known();
    test_members_in_a_larger_struct();
    return 0;
}
