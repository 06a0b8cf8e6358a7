// A step of small_fc for many particles, each with meta-weights of its own: lopt/metatrain/compiled.py.
//
// The passes of measure.h and apply.h, on one tensor after the other while it lies in the caches; a tensor is one tile. A thread
// takes whole particles, so how many there are does not change a sum. A particle's m has one decay of all tensors after the other;
// the passes want a tensor's three together, so they are copied out and back; that it takes time was not measurable.
#include <algorithm>
#include <cmath>

#include "apply.h"
#include "measure.h"

namespace lopt {
namespace {

// Of all particles. Addresses in `tensors` are the first one's; `next`, (T, 7), is how many bytes further the next one's lie.
struct Particles {
    const index_t *tensors, *tiles, *next, *starts;  // starts: of each tensor in a row
    index_t tensor_count, size, vectors;             // elements of a row, and of its tensors below two dimensions
    const float *rates, *decays, *bias, *network, *each;  // each: what an element's step is multiplied by, or null
    index_t network_size, each_stride;
    const float* unbiased;  // (particles,) or null: steps are multiplied by a tensor's signal, see `lopt.features.signal`
};

// What a thread needs.
struct Workplace {
    std::vector<index_t> records;
    std::vector<double> squares, moments;
    std::vector<float> m, d, step;  // of one tensor
    Block block;
    Scratch scratch;
};

// n floats of three decays, `from_stride` and `to_stride` apart.
inline void copy_decays(const float* from, index_t from_stride, float* to, index_t to_stride, index_t n) {
    for (int k = 0; k < 3; ++k) std::copy_n(from + k * from_stride, n, to + k * to_stride);
}

// sqrt(mean m_0^2 / sqrt(mean v^2)) of a tensor, from the mean squares of its features in the reference's order.
inline float agreement(const float* mean_square) {
    constexpr int M = 2, V = 5;
    return std::sqrt(mean_square[M] / std::sqrt(std::max(mean_square[V], 1e-37f)) + 1e-12f);
}

inline void step_tensor(const Particles& all, const Step& step, index_t particle, index_t i, Workplace& w) {
    constexpr int MEANS = 9;
    float mean_square[FEATURES], means[MEANS];
    const Tile tile(all.tiles + i * plan::TILE_FIELDS);
    sums_of_tile(step, tile, nullptr);
    Tensor t(step.bases, step.record(i));
    float *const m = t.m, *const d = t.fast;
    copy_decays(m, all.size, t.m = w.m.data(), t.numel, t.numel);
    if (!t.factored) copy_decays(d, all.vectors, t.fast = w.d.data(), t.numel, t.numel);
    Accumulate first(step, t, tile, w.block);
    for_each_block(t, tile, w.block, first);
    first.store(w.squares.data() + i * FEATURES, w.moments.data() + i * MEANS);
    fold_tensor(step, i, w.squares.data(), w.moments.data(), mean_square, means);
    const float* network = all.network + particle * all.network_size;
    w.scratch.first.fold(t, network, mean_square, all.bias + particle * HIDDEN);
    Apply second(t, step.rule(i), all.rates + i * plan::RATES, network + FIRST_SIZE, w.scratch);
    for_each_block(t, tile, w.scratch.block, second);
    copy_decays(t.m, t.numel, m, all.size, t.numel);
    if (!t.factored) copy_decays(t.fast, t.numel, d, all.vectors, t.numel);
    if (!all.each) return;
    float* p = reinterpret_cast<float*>(step.record(i)[plan::P]);  // `second` left p and wrote -step
    const float* each = all.each + particle * all.each_stride + all.starts[i];
    const float signal = all.unbiased ? all.unbiased[particle] * agreement(mean_square) : 1.0f;
    for (index_t e = 0; e < t.numel; ++e) p[e] += signal * each[e] * w.step[e];
}

inline void step_particle(const Particles& all, index_t particle, Workplace& w) {
    w.records.assign(all.tensors, all.tensors + all.tensor_count * plan::FIELDS);
    w.squares.resize(all.tensor_count * FEATURES);
    w.moments.resize(all.tensor_count * 9);
    w.m.resize(3 * all.size), w.d.resize(3 * all.vectors), w.step.resize(all.each ? all.size : 0);
    for (index_t i = 0; i < all.tensor_count; ++i) {
        index_t* r = w.records.data() + i * plan::FIELDS;
        for (int k = plan::P; k <= plan::FAST; ++k) r[k] += particle * all.next[i * 7 + k];
        if (all.each) r[plan::OUT] = static_cast<index_t>(number(w.step.data()));
    }
    const Step step{w.records.data(), all.tiles, all.rates, all.decays + particle * 7, Bases{}, __builtin_inff(), false};
    for (index_t i = 0; i < all.tensor_count; ++i) step_tensor(all, step, particle, i, w);
}

}  // namespace
}  // namespace lopt

// tensors, tiles: a plan with one tile a tensor; rates (T, 6); decays (n, 7); bias (n, h); network (n, network_size) as
// `lopt.step.cpu.pack` lays it out; each: null, or rates per element, each_stride apart, and then shrink is 0. In place: p, m, v,
// slow, fast. unbiased: null, or a factor for each particle, and then `each` is there.
extern "C" void lopt_particles(int64_t particles, const int64_t* tensors, const int64_t* tiles, const int64_t* next,
                               const int64_t* starts, int64_t tensor_count, int64_t size, int64_t vectors, const float* rates,
                               const float* decays, const float* bias, const float* network, int64_t network_size,
                               const float* each, int64_t each_stride, const float* unbiased, int threads) {
    using namespace lopt;
    const Particles all{tensors, tiles, next, starts, tensor_count, size, vectors, rates,
                        decays, bias, network, each, network_size, each_stride, unbiased};
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int64_t i = 0; i < particles; ++i) {
        static thread_local Workplace workplace;
        step_particle(all, i, workplace);
    }
}
