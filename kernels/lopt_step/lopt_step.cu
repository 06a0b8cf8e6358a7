// A step of small_fc_lopt (MuLO, ELO) or VeLO for all tensors of a plan on a GPU: docs/lopt-plan.md, and lopt-cuda.md beside it.
//
// Launches take a Step (cuda/tensor.cuh) and a stream in it, read no value back, and can be captured into a graph. Each
// returns CUDA's error code, 0 if all is well. Blocks take tiles in turns, share nothing that they write, and sum in one order.
//
// Tunable: THREADS, RESIDENT, GRID, PANEL, MEASURE_PIECE, ELEMENTS, HIDDEN_TILE, PRECISION, WEIGHTS_IN_REGISTERS.
#ifndef HIDDEN     // width of small_fc's network
#define HIDDEN 32
#endif
#ifndef ELEMENTS   // consecutive elements that a thread (four lanes, on tensor cores) takes at a time in the apply pass
#define ELEMENTS 4
#endif
#ifndef GRID       // blocks a processor at most: each takes tile after tile
#define GRID 4
#endif
#ifndef PRECISION  // of small_fc's network: 0 float32; 1 TF32 in two parts, as exact; 2 TF32 alone
#define PRECISION 1
#endif

#include "cuda/accumulate.cuh"
#include "cuda/apply.cuh"
#include "cuda/sums.cuh"

namespace lopt {

#if PRECISION == 0
typedef NetworkFp32<false, HIDDEN, ELEMENTS> SmallNetwork;
#else
typedef NetworkTf32<false, HIDDEN, ELEMENTS, PRECISION == 1> SmallNetwork;
#endif
constexpr int VELO_HIDDEN = 4;
typedef NetworkFp32<true, VELO_HIDDEN, ELEMENTS> VeloNetwork;

inline int64_t blocks_for(const Step& step, int64_t items) {
    const int64_t most = GRID * step.processors;
    return items < most ? items : most;
}

constexpr auto apply_small = apply_kernel<false, HIDDEN, ELEMENTS, SmallNetwork>;
constexpr auto apply_velo = apply_kernel<true, VELO_HIDDEN, ELEMENTS, VeloNetwork>;

}  // namespace lopt

// Sums over rows and columns, and the moments R and C in place.
extern "C" int lopt_sums(const lopt::Step* step) {
    using namespace lopt;
    LAUNCH(sums_kernel, blocks_for(*step, step->tile_count), step->stream, *step);
    LAUNCH(finalise_kernel, blocks_for(*step, step->tile_count), step->stream, *step);
    return cudaGetLastError();
}

// The means of R that its normaliser needs; the passes below read them.
extern "C" int lopt_means(const lopt::Step* step) {
    using namespace lopt;
    LAUNCH(means_kernel, blocks_for(*step, step->tensor_count), step->stream, *step);
    return cudaGetLastError();
}

// m, v and D in place; mean squares of features; for VeLO, statistics of p and of the old moments.
extern "C" int lopt_accumulate(const lopt::Step* step, int velo) {
    using namespace lopt;
    if (velo) {
        LAUNCH(accumulate_kernel<true>, blocks_for(*step, step->tile_count), step->stream, *step);
        LAUNCH(fold_kernel<true>, blocks_for(*step, step->tensor_count), step->stream, *step);
    } else {
        LAUNCH(accumulate_kernel<false>, blocks_for(*step, step->tile_count), step->stream, *step);
        LAUNCH(fold_kernel<false>, blocks_for(*step, step->tensor_count), step->stream, *step);
    }
    return cudaGetLastError();
}

// The parameters.
extern "C" int lopt_apply(const lopt::Step* step, int velo) {
    using namespace lopt;
    if (velo) LAUNCH(apply_velo, blocks_for(*step, step->tile_count), step->stream, *step);
    else LAUNCH(apply_small, blocks_for(*step, step->tile_count), step->stream, *step);
    return cudaGetLastError();
}
