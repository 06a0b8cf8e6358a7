// How a plan lies in memory: lopt/step/plan.py has the same names in the same order. For C++ and CUDA alike.
#pragma once
#ifndef __CUDACC_RTC__
#include <cstdint>
#endif

namespace plan {

typedef int64_t index_t;

constexpr int DIMS = 6;

// One row of `tensors`. POINTERS are bytes from the launch's base addresses, which are 0 in an optimizer.
enum Field {
    P, G, OUT, M, V, SLOW, FAST,                      // POINTERS
    NUMEL, OUTER, X, MID, Y, Z, FLAGS, P_TYPE, G_TYPE, OUT_TYPE,
    SLOW_PARTIAL, FAST_PARTIAL, FIRST_TILE, TILES,
    SIZE0, P_STRIDE0 = SIZE0 + DIMS, G_STRIDE0 = P_STRIDE0 + DIMS, OUT_STRIDE0 = G_STRIDE0 + DIMS,
    FIELDS = OUT_STRIDE0 + DIMS
};

// One row of `tiles`.
enum TileField { TENSOR, BATCH_FROM, BATCH_TO, X_FROM, X_TO, J_FROM, J_TO, X_PIECE, J_PIECE, TILE_FIELDS };

enum Flag { FACTORED = 1, ROW_IS_SLOW = 2 };
enum Type { FLOAT32, BFLOAT16, FLOAT16 };

// One row of `rates`: what a step multiplies by, per tensor.
enum Rate { GRADIENT_SCALE, STEP_SCALE, EXP_MULT, SHRINK, SHRINK_AFTER, OK, RATES };

}  // namespace plan
