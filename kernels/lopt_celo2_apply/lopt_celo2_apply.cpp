// The apply pass of CELO2 over all tensors of a plan: features -> 30-8-8-2 network -> direction, or parameter.
//
// In multiply-adds per element: 18 x 8 + 8 x 8 + 2 x 8; the third output is not used. CELO2 takes the direction (shrink 0, step scale
// -1) and goes on with it. The pass is in kernels/lopt_step/apply.h, the plan in docs/lopt-plan.md. Tunable (space.json): as in
// kernels/lopt_small_fc_apply. HIDDEN is the width.
#define EXTRA 1
#define RMS_EPS 1e-8f
#define DIAG_EPS 0.0f
#define NORM_EPS 1e-9f
#ifndef HIDDEN
#define HIDDEN 8
#endif
#include "../lopt_step/apply.h"

// p, g, out, m, v, slow, fast: what the plan's addresses count from. out may be p. Returns milliseconds.
extern "C" float lopt_celo2_apply(const void* p, const void* g, const void* out, const void* m, const void* v, const void* slow,
                                  const void* fast, const int64_t* tensors, const int64_t* tiles, int64_t tile_count,
                                  const float* rates, const float* mean_square, const float* bias, const float* network,
                                  int64_t network_stride, float bound, int replace_nan, int threads) {
    return lopt::apply({p, g, out, m, v, slow, fast}, tensors, tiles, tile_count, rates, mean_square, bias, network,
                       network_stride, bound, replace_nan != 0, threads);
}
