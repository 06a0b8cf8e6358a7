// A tensor's network in shared memory, with the normalisers of its features folded in.
#pragma once
#include "features.cuh"

namespace lopt {

// Matrices are (inputs, outputs); `vector` is in the order of `vector_features`.
template <bool VELO, int H> struct Weights {
    typedef Features<VELO> F;
    alignas(16) float vector[F::VECTORS][H];
    alignas(16) float slow[6][H], fast[6][H];  // of the row's and of the column's moment: X_k, 1 / sqrt(X_k + 1e-8)
    alignas(16) float bias[H], hidden[H][H], bias2[H], output[2][H];
    float bias3[2];

    // N(f_i) = f_i / sqrt(eps + mean f_i^2) goes into row i of W1. Below two dimensions R = C = D, and their rows are added.
    __device__ void stage(const Step& step, const Tensor& t, index_t tensor) {
        const float *w = step.network + tensor * step.network_stride, *mean_square = step.mean_square + tensor * F::ALL;
        for (int i = thread_of_block(); i < F::ALL * H; i += THREADS) {
            const int at = i / H, n = i % H;
            if (at < F::VECTORS) vector[at][n] = folded(w, mean_square, F::vector_place(at), n);
            else if (at < F::VECTORS + 6) {
                const int k = at - F::VECTORS;
                const float row = folded(w, mean_square, F::factor_place(false, k), n);
                const float col = folded(w, mean_square, F::factor_place(true, k), n);
                slow[k][n] = !t.factored ? 0.0f : t.row_is_slow ? row : col;
                fast[k][n] = !t.factored ? row + col : t.row_is_slow ? col : row;
            }
        }
        w += F::ALL * H;
        for (int i = thread_of_block(); i < H * H; i += THREADS) hidden[i / H][i % H] = w[i];
        for (int n = thread_of_block(); n < H; n += THREADS) {
            bias[n] = step.bias[tensor * H + n];
            bias2[n] = w[H * H + n];
            output[0][n] = w[H * H + H + n];
            output[1][n] = w[H * H + 2 * H + n];
        }
        if (thread_of_block() < 2) bias3[thread_of_block()] = w[H * H + 3 * H + thread_of_block()];
    }

  private:
    __device__ static float folded(const float* w, const float* mean_square, int place, int n) {
        return w[place * H + n] * rsqrtf(F::NORM_EPS + mean_square[place]);
    }
};

// What a panel's columns add to the first layer: bias, and their share of it, neuron by neuron.
template <int N, int H> struct Shares {
    static constexpr int PITCH = Columns<N>::PITCH;
    alignas(16) float of[H][PITCH];

    template <class W> __device__ void fill(const W& weights, const Tensor& t, int slot, index_t entry) {
        float x[6];
        for (int k = 0; k < 3; ++k) {
            x[k] = t.fast[k * t.fast_size + entry];
            x[3 + k] = moment_rsqrt(x[k]);
        }
        for (int n = 0; n < H; ++n) {
            float sum = weights.bias[n];
            for (int k = 0; k < 6; ++k) sum += weights.fast[k][n] * x[k];
            of[n][slot] = sum;
        }
    }
};

// How the parameter is written: p <- shrink p - s, or shrink (p - s), with s = step_scale o_0 exp(exp_mult o_1).
struct Update {
    float step_scale, exp_mult, shrink;
    bool after, ok;

    __device__ Update(const Step& step, index_t tensor) {
        const float* rates = step.rates + tensor * plan::RATES;
        step_scale = rates[plan::STEP_SCALE];
        exp_mult = rates[plan::EXP_MULT];
        shrink = rates[plan::SHRINK];
        after = rates[plan::SHRINK_AFTER] != 0.0f;
        ok = rates[plan::OK] != 0.0f;
    }

    __device__ void write(const Tensor& t, index_t e, float p, float o0, float o1) const {
        const float s = step_scale * o0 * expf(exp_mult * o1);
        if (ok) t.out.write(e, after ? shrink * (p - s) : shrink * p - s);
    }
};

}  // namespace lopt
