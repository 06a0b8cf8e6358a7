// The first four passes of a step (measure.h) over all tensors of a plan.
#include "measure.h"

// Sums to fold, all tensors of a plan. mean_square: (T, FEATURES); means: (T, 9); partials: as the plan says; squares:
// (tiles, FEATURES); moments: (tiles, 9). In place: m, v, slow, fast.
extern "C" void lopt_measure(const int64_t* tensors, int64_t tensor_count, const int64_t* tiles, int64_t tile_count,
                             const float* rates, const float* decays, float bound, int replace_nan, float* partials,
                             double* squares, double* moments, float* mean_square, float* means, int threads) {
    using namespace lopt;
    const Step step{tensors, tiles, rates, decays, Bases{}, bound, replace_nan != 0};
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < tile_count; ++i) sums_of_tile(step, Tile(tiles + i * plan::TILE_FIELDS), partials);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < tensor_count; ++i) finalise_tensor(step, i, partials);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < tile_count; ++i) {
        static thread_local Block block;
        const Tile tile(tiles + i * plan::TILE_FIELDS);
        const Tensor t(step.bases, step.record(tile.tensor));
        Accumulate work(step, t, tile, block);
        for_each_block(t, tile, block, work);
        work.store(squares + i * FEATURES, moments + i * 9);
    }
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < tensor_count; ++i)
        fold_tensor(step, i, squares, moments, mean_square + i * FEATURES, means + i * 9);
}
