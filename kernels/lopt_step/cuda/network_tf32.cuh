// The network by tensor cores, mma.sync m16n8k8 on TF32. A float is hi + lo, two TF32 numbers, and a product three of theirs
// (hi hi + hi lo + lo hi), which is as exact as float32; SPLIT = false keeps hi alone: 3 bits in a thousand, a third of the work.
//
// Four lanes (a quad g = lane / 4, t = lane % 4) share N consecutive elements of a row. Sums do not care in which order they
// are taken, so the order of the inputs is chosen so that no value moves between lanes:
//     layer one   lane t < 3 has decay t: m, m s, fac g, fac m; lane 3 has g, p, v, s. Columns t and t + 4 of two steps.
//     layer two   a lane's outputs of layer one, neurons 8 n + 2 t and 8 n + 2 t + 1, are its inputs t and t + 4 of step n.
#pragma once
#include "weights.cuh"

#ifndef WEIGHTS_IN_REGISTERS  // 1: the second layer's weights stay in registers; 0: they are read from shared memory
#define WEIGHTS_IN_REGISTERS 0
#endif

namespace lopt {

template <bool SPLIT> struct Split {
    uint32_t hi, lo;

    __device__ explicit Split(float x = 0.0f) : hi(to_tf32(x)), lo(0) {
        if (!SPLIT) return;
        float high;
        memcpy(&high, &hi, 4);
        lo = to_tf32(x - high);
    }
};

// A lane's share of an 8 x 8 piece of a weight matrix.
struct alignas(16) Fragment {
    uint32_t hi[2], lo[2];

    template <bool SPLIT> __device__ void set(float first, float second) {
        const Split<SPLIT> a(first), b(second);
        hi[0] = a.hi, hi[1] = b.hi, lo[0] = a.lo, lo[1] = b.lo;
    }
};

// A lane's inputs of one step of 8: rows g and g + 8, columns t and t + 4.
template <bool SPLIT> struct Inputs {
    uint32_t hi[4], lo[4];

    __device__ Inputs(float row_t, float other_t, float row_t4, float other_t4) {
        const float x[4] = {row_t, other_t, row_t4, other_t4};
        for (int i = 0; i < 4; ++i) {
            const Split<SPLIT> s(x[i]);
            hi[i] = s.hi, lo[i] = s.lo;
        }
    }

    __device__ void multiply(const Fragment& w, float (&sum)[4]) const {
        if (SPLIT) {  // small ones first
            mma_tf32(sum, lo, w.hi[0], w.hi[1]);
            mma_tf32(sum, hi, w.lo[0], w.lo[1]);
        }
        mma_tf32(sum, hi, w.hi[0], w.hi[1]);
    }
};

template <bool VELO, int H, int N, bool SPLIT> struct NetworkTf32 {
    static_assert(!VELO && H % 8 == 0 && (N == 2 || N == 4), "widths of the matrix instruction");
    static_assert(PANEL / N % 8 == 0, "a panel's rows are whole warps");
    typedef Weights<VELO, H> W;
    static constexpr int ALIGNED = 8, TILES = H / 8, ROWS = N / 2;  // pieces a row; tiles of neurons; of elements
    typedef float Sums[ROWS][TILES][4];                             // a lane's: elements 2 r and 2 r + 1, neurons 8 n + 2 t, + 1

    Fragment vector[2][TILES][LANES], slow[TILES][LANES], hidden[TILES][TILES][LANES];
    float rows[WARPS][H];

    // Weights as the lanes want them.
    __device__ void stage(const W& w) {
        for (int i = thread_of_block(); i < (3 + TILES) * TILES * LANES; i += THREADS) {
            const int lane = i % LANES, n = i / LANES % TILES, k = i / LANES / TILES, g = lane / 4, t = lane % 4, to = 8 * n + g;
            if (k < 2) vector[k][n][lane].template set<SPLIT>(w.vector[8 * k + t][to], w.vector[8 * k + t + 4][to]);
            else if (k == 2) slow[n][lane].template set<SPLIT>(t < 3 ? w.slow[t][to] : 0.0f, t < 3 ? w.slow[3 + t][to] : 0.0f);
            else {
                const int from = 8 * (k - 3) + 2 * t;
                hidden[k - 3][n][lane].template set<SPLIT>(w.hidden[from][to], w.hidden[from + 1][to]);
            }
        }
        __syncthreads();
    }

    __device__ void run(const Tensor& t, const Tile& tile, const Panel<N>& panel, const GradientRule& rule,
                        const Factors& factors, const W& w, const Columns<N>& columns, const Shares<N, H>& shares,
                        const Update& update) {
        const int pieces = panel.rows(tile) * panel.pieces, quad = lane_of_warp() / 4;
        const bool one_row = t.z == 1 && panel.pieces % 8 == 0;  // the pieces of a warp lie in one row
#if WEIGHTS_IN_REGISTERS
        Fragment own[TILES][TILES];
        for (int k = 0; k < TILES; ++k)
            for (int n = 0; n < TILES; ++n) own[k][n] = hidden[k][n][lane_of_warp()];
#endif
        for (int from = 8 * warp_of_block(); from < pieces; from += 8 * WARPS) {  // all lanes of a warp, or none
            const bool there = from + quad < pieces;
            Piece<N> piece(t, tile, panel, there ? from + quad : 0);
            if (!there) piece.count = 0;
            Sums h, sums;
            begin(t, piece, one_row, w, shares, h);
            vectors(t, piece, rule, factors, columns, h);
            relu(h);
            for (int r = 0; r < ROWS; ++r)
                for (int n = 0; n < TILES; ++n)
                    for (int i = 0; i < 4; ++i) sums[r][n][i] = w.bias2[8 * n + 2 * (lane_of_warp() % 4) + i % 2];
#pragma unroll
            for (int k = 0; k < TILES; ++k)
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    const Inputs<SPLIT> x(h[r][k][0], h[r][k][2], h[r][k][1], h[r][k][3]);
#pragma unroll
                    for (int n = 0; n < TILES; ++n)
#if WEIGHTS_IN_REGISTERS
                        x.multiply(own[k][n], sums[r][n]);
#else
                        x.multiply(hidden[k][n][lane_of_warp()], sums[r][n]);
#endif
                }
            relu(sums);
            finish(t, piece, w, sums, update);
        }
    }

  private:
    // What does not vary within a row or a column: where layer one's sums begin.
    __device__ void begin(const Tensor& t, const Piece<N>& piece, bool one_row, const W& w, const Shares<N, H>& shares, Sums& h) {
        const int lane = lane_of_warp(), at = lane % 4, warp = warp_of_block();
        if (one_row) {  // lane n has the row's share of neuron n
            for (int n = lane; n < H; n += LANES) rows[warp][n] = t.factored ? of_row(t, piece, w, n) : 0.0f;
            __syncwarp();
        }
        for (int n = 0; n < TILES; ++n)
            for (int c = 0; c < 2; ++c) {
                const int neuron = 8 * n + 2 * at + c;
                float x[N];
                load(&shares.of[neuron][piece.slot], N, x);
                for (int i = 0; i < N; ++i) h[i / 2][n][2 * (i % 2) + c] = one_row ? x[i] + rows[warp][neuron] : x[i];
            }
        __syncwarp();
        if (!one_row && t.factored) add_rows(t, piece, h);
    }

    __device__ static float of_row(const Tensor& t, const Piece<N>& piece, const W& w, int n) {
        float sum = 0.0f;
        for (int k = 0; k < 3; ++k) {
            const float x = t.slow[k * t.slow_size + piece.slow];
            sum += w.slow[k][n] * x + w.slow[3 + k][n] * moment_rsqrt(x);
        }
        return sum;
    }

    // The rows' share where elements of a warp differ in it: one more step of 8 inputs, two of them nothing.
    __device__ void add_rows(const Tensor& t, const Piece<N>& piece, Sums& h) const {
        const int at = lane_of_warp() % 4;
        float x[N], inverse[N];
        for (int i = 0; i < N; ++i) {
            const bool mine = at < 3 && i < piece.count;
            x[i] = mine ? t.slow[at * t.slow_size + piece.slow + piece.z_at(t, i)] : 0.0f;
            inverse[i] = mine ? moment_rsqrt(x[i]) : 0.0f;
        }
        for (int r = 0; r < ROWS; ++r) {
            const Inputs<SPLIT> inputs(x[2 * r], x[2 * r + 1], inverse[2 * r], inverse[2 * r + 1]);
            for (int n = 0; n < TILES; ++n) inputs.multiply(slow[n][lane_of_warp()], h[r][n]);
        }
    }

    __device__ void vectors(const Tensor& t, const Piece<N>& piece, const GradientRule& rule, const Factors& factors,
                            const Columns<N>& columns, Sums& h) const {
        const int at = lane_of_warp() % 4, decay = at < 3 ? at : 0;
        float g[N], v[N], own[N], row[N];  // own: m of the lane's decay, or p
        t.g.read(piece.e, piece.count, g);
        load(t.v + piece.e, piece.count, v);
        if (at < 3) load(t.m + at * t.numel + piece.e, piece.count, own);
        else t.p.read(piece.e, piece.count, own);
        factors.of_row(piece, decay, row);
        float x[4][N];  // columns t and t + 4 of both steps
        for (int i = 0; i < N; ++i) {
            const float s = rsqrtf(v[i] + Features<VELO>::RMS_EPS), gradient = rule(g[i]);
            x[0][i] = at < 3 ? own[i] : gradient;
            x[1][i] = at < 3 ? own[i] * s : own[i];
            x[2][i] = at < 3 ? gradient * (row[i] * columns.gradient[decay][piece.slot + i]) : v[i];
            x[3][i] = at < 3 ? own[i] * (row[i] * columns.momentum[decay][piece.slot + i]) : s;
            if (i >= piece.count) x[0][i] = x[1][i] = x[2][i] = x[3][i] = 0.0f;
        }
        for (int r = 0; r < ROWS; ++r)
            for (int k = 0; k < 2; ++k) {
                const Inputs<SPLIT> inputs(x[2 * k][2 * r], x[2 * k][2 * r + 1], x[2 * k + 1][2 * r], x[2 * k + 1][2 * r + 1]);
                for (int n = 0; n < TILES; ++n) inputs.multiply(vector[k][n][lane_of_warp()], h[r][n]);
            }
    }

    __device__ static void relu(Sums& x) {
        for (int r = 0; r < ROWS; ++r)
            for (int n = 0; n < TILES; ++n)
                for (int i = 0; i < 4; ++i) x[r][n][i] = x[r][n][i] > 0.0f ? x[r][n][i] : x[r][n][i] - x[r][n][i];
    }

    // The last layer in float32: a lane's neurons, then the quad's; lane t writes element t.
    __device__ static void finish(const Tensor& t, const Piece<N>& piece, const W& w, const Sums& x, const Update& update) {
        const int at = lane_of_warp() % 4;
        float mine[2] = {0.0f, 0.0f};
        for (int i = 0; i < N; ++i)
            for (int o = 0; o < 2; ++o) {
                float sum = 0.0f;
                for (int n = 0; n < TILES; ++n)
                    for (int c = 0; c < 2; ++c) sum += w.output[o][8 * n + 2 * at + c] * x[i / 2][n][2 * (i % 2) + c];
                sum += __shfl_xor_sync(EVERYBODY, sum, 1);
                sum += __shfl_xor_sync(EVERYBODY, sum, 2);
                mine[o] = i == at ? sum + w.bias3[o] : mine[o];
            }
        if (at < piece.count) update.write(t, piece.e + at, t.p.read(piece.e + at), mine[0], mine[1]);
    }
};

}  // namespace lopt
