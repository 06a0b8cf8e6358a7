// The apply pass of small_fc_lopt, MuLO and ELO over all tensors of a plan: features -> 39-32-32-2 network -> parameter.
//
// In multiply-adds per element: 16 x 32 + 32 x 32 + 2 x 32, since time features, normalisers and the twelve features of rows and
// columns have been folded away. The pass is in kernels/lopt_step/apply.h, the plan in docs/lopt-plan.md.
//
// Tunable (space.json): BLOCK elements a block; register tiles of HIDDEN_TILE neurons and UNROLL vectors of VEC elements;
// FUSE_OUTPUT, LOOP_ORDER: see network.h. HIDDEN is the width. PANEL, columns whose shares of the first layer are held, is not
// among them: 256, 512 and 1024 were measured within 2 % of each other.
#include "../lopt_step/apply.h"

// p, g, out, m, v, slow, fast: what the plan's addresses count from. out may be p. Returns milliseconds.
extern "C" float lopt_small_fc_apply(const void* p, const void* g, const void* out, const void* m, const void* v,
                                     const void* slow, const void* fast, const int64_t* tensors, const int64_t* tiles,
                                     int64_t tile_count, const float* rates, const float* mean_square, const float* bias,
                                     const float* network, int64_t network_stride, float bound, int replace_nan,
                                     int threads) {
    return lopt::apply({p, g, out, m, v, slow, fast}, tensors, tiles, tile_count, rates, mean_square, bias, network,
                       network_stride, bound, replace_nan != 0, threads);
}
