/* The box of this process, for the binding that adds samples. With the GVL. */
#pragma once

#include "box/black_box.h"

/*
 * Writes what a new sample has changed in the rings, without the GVL, if this process has a box. Raises interrupts of
 * this thread.
 */
void memscope_black_box_add(const struct memscope_rings *rings);
