// Passes 1 and 2: row and column sums of g^2, and the moments R and C.
#pragma once
#include "tensor.cuh"

namespace lopt {

// One moment of one tensor, slow or fast: which entries there are, what a sum is divided by, where unfinished sums lie.
struct Moment {
    float* at;
    index_t size, terms, partial;

    __device__ static Moment slow(const Tensor& t) { return {t.slow, t.slow_size, t.y, t.record[plan::SLOW_PARTIAL]}; }
    __device__ static Moment fast(const Tensor& t) { return {t.fast, t.fast_size, t.x, t.record[plan::FAST_PARTIAL]}; }

    __device__ void finish(index_t entry, double sum, const float* decays) const {
        const float mean = static_cast<float>(sum / static_cast<double>(terms)) + 1e-30f;
        for (int k = 0; k < 3; ++k) at[k * size + entry] = ema(at[k * size + entry], mean, decays[4 + k]);
    }

    // A tile's sum: finished if the tile holds all terms, else put where its piece belongs.
    __device__ void take(index_t entry, index_t piece, double sum, const Step& step) const {
        if (partial < 0) finish(entry, sum, step.decays);
        else step.partials[partial + piece * size + entry] = static_cast<float>(sum);
    }
};

// A warp takes a row (of one z); its lanes go along it.
__device__ inline void sum_rows(const Step& step, const Tensor& t, const Tile& tile, const GradientRule& rule) {
    const Moment slow = Moment::slow(t);
    const int z_size = static_cast<int>(t.z), rows = tile.batches * tile.xs;
    for (int i = warp_of_block(); i < rows * z_size; i += WARPS) {
        const int row = i / z_size, z = i % z_size;
        const index_t r = t.row(tile.batch_from + row / tile.xs, tile.x_from + row % tile.xs);
        const index_t e = r * t.run + tile.j_from + z;
        double sum = 0.0;
        if (z_size == 1) {
            for (int j = 4 * lane_of_warp(); j < tile.width; j += 4 * LANES) {
                float g[4];
                const int count = min(4, tile.width - j);
                t.g.read(e + j, count, g);
                for (int q = 0; q < 4; ++q) g[q] = q < count ? rule(g[q]) : 0.0f;
                sum += static_cast<double>((g[0] * g[0] + g[1] * g[1]) + (g[2] * g[2] + g[3] * g[3]));
            }
        } else {
            for (int j = z_size * lane_of_warp(); j < tile.width; j += z_size * LANES) {
                const float g = rule(t.g.read(e + j));
                sum += static_cast<double>(g * g);
            }
        }
        sum = warp_sum(sum);
        if (lane_of_warp() == 0) slow.take(r * t.z + z, tile.j_piece, sum, step);
    }
}

// A lane takes a piece of four columns, a warp every WARPS-th row; then the warps' sums are added in order.
__device__ inline void sum_columns(const Step& step, const Tensor& t, const Tile& tile, const GradientRule& rule) {
    __shared__ double part[WARPS][PANEL];
    const Moment fast = Moment::fast(t);
    for_each_panel<4>(tile, 1, [&](const Panel<4>& panel) {
        const int pieces = panel.batches * panel.pieces;
        for (int i = lane_of_warp(); i < pieces; i += LANES) {
            double sum[4] = {0.0, 0.0, 0.0, 0.0};
            for (int x = warp_of_block(); x < tile.xs; x += WARPS) {
                const int row = i / panel.pieces * tile.xs + x;
                const Piece<4> piece(t, tile, panel, row * panel.pieces + i % panel.pieces);
                float g[4];
                t.g.read(piece.e, piece.count, g);
                for (int q = 0; q < piece.count; ++q) {
                    g[q] = rule(g[q]);
                    sum[q] += static_cast<double>(g[q] * g[q]);
                }
            }
            for (int q = 0; q < 4; ++q) part[warp_of_block()][4 * i + q] = sum[q];
        }
        __syncthreads();
        for (int slot = thread_of_block(); slot < panel.slots(); slot += THREADS) {
            const int piece = slot / 4, batch = piece / panel.pieces, j = piece % panel.pieces * 4 + slot % 4;
            double sum = 0.0;
            for (int w = 0; w < WARPS; ++w) sum += part[w][slot];
            const index_t entry = (tile.batch_from + panel.batch + batch) * t.run + tile.j_from + panel.j + j;
            if (j < panel.width) fast.take(entry, tile.x_piece, sum, step);
        }
        __syncthreads();
    });
}

__global__ void __launch_bounds__(THREADS, RESIDENT) sums_kernel(const Step step) {
    __shared__ Work work;
    for (index_t i = blockIdx.x; i < step.tile_count; i += gridDim.x) {
        work.open_tile(step, i);
        const Tile& tile = work.tile;
        const Tensor& t = work.t;
        if (!t.factored) continue;  // all threads do
        const GradientRule rule(step, tile.tensor);
        sum_rows(step, t, tile, rule);
        sum_columns(step, t, tile, rule);
    }
}

// The i-th of n even shares of a moment: its entries' partial sums, piece after piece.
__device__ inline void finalise_share(const Step& step, const Moment& moment, index_t pieces, index_t i, index_t n) {
    if (moment.partial < 0) return;
    const index_t to = quotient((i + 1) * moment.size, n);
    for (index_t entry = quotient(i * moment.size, n) + thread_of_block(); entry < to; entry += THREADS) {
        double sum = 0.0;
        for (index_t k = 0; k < pieces; ++k) sum += step.partials[moment.partial + k * moment.size + entry];
        moment.finish(entry, sum, step.decays);
    }
}

// Each tile's block finishes a share of its tensor's moments, so that a large tensor has as many blocks as it has tiles.
__global__ void __launch_bounds__(THREADS, RESIDENT) finalise_kernel(const Step step) {
    __shared__ Work work;
    for (index_t i = blockIdx.x; i < step.tile_count; i += gridDim.x) {
        work.open_tile(step, i);
        const Tensor& t = work.t;
        if (!t.factored) continue;
        const index_t first = t.record[plan::FIRST_TILE], n = t.record[plan::TILES];
        const int64_t* last = step.tiles + (first + n - 1) * plan::TILE_FIELDS;
        finalise_share(step, Moment::slow(t), last[plan::J_PIECE] + 1, i - first, n);
        finalise_share(step, Moment::fast(t), last[plan::X_PIECE] + 1, i - first, n);
    }
}

// Mean over c of R, which its normaliser needs: c is x for a slow R and y for a fast one. A block a tensor, a warp a mean.
__global__ void __launch_bounds__(THREADS, RESIDENT) means_kernel(const Step step) {
    __shared__ Work work;
    for (index_t i = blockIdx.x; i < step.tensor_count; i += gridDim.x) {
        work.open_tensor(step, i);
        const Tensor& t = work.t;
        if (!t.factored) continue;
        const index_t count = t.outer * t.mid * t.z, terms = t.row_is_slow ? t.x : t.y;
        for (index_t at = warp_of_block(); at < 3 * count; at += WARPS) {
            const index_t k = quotient(at, count), batch = quotient(at - k * count, t.z), z = at - k * count - batch * t.z;
            double sum = 0.0;
            for (index_t c = lane_of_warp(); c < terms; c += LANES)
                sum += t.row_is_slow ? t.slow[k * t.slow_size + t.row(batch, c) * t.z + z]
                                     : t.fast[k * t.fast_size + batch * t.run + c * t.z + z];
            sum = warp_sum(sum);
            if (lane_of_warp() == 0) step.means[step.means_at[i] + at] = static_cast<float>(sum / static_cast<double>(terms));
        }
    }
}

}  // namespace lopt
