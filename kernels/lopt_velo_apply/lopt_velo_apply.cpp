// The apply pass of VeLO over all tensors of a plan: features -> each tensor's own 30-4-4-2 network -> parameter.
//
// In multiply-adds per element: 18 x 4 + 4 x 4 + 2 x 4; the third output is not used. The pass is in kernels/lopt_step/apply.h, the
// plan in docs/lopt-plan.md. Tunable (space.json): as in kernels/lopt_small_fc_apply. HIDDEN is the width.
#define EXTRA 1
#define DIAG_EPS 0.0f
#ifndef HIDDEN
#define HIDDEN 4
#endif
#ifndef UNROLL
#define UNROLL 4
#endif
#include "../lopt_step/apply.h"

// p, g, out, m, v, slow, fast: what the plan's addresses count from. out may be p. Returns milliseconds.
extern "C" float lopt_velo_apply(const void* p, const void* g, const void* out, const void* m, const void* v, const void* slow,
                                 const void* fast, const int64_t* tensors, const int64_t* tiles, int64_t tile_count,
                                 const float* rates, const float* mean_square, const float* bias, const float* network,
                                 int64_t network_stride, float bound, int replace_nan, int threads) {
    return lopt::apply({p, g, out, m, v, slow, fast}, tensors, tiles, tile_count, rates, mean_square, bias, network,
                       network_stride, bound, replace_nan != 0, threads);
}
