// Dedispersion, as radio astronomers use it to search for pulsars: a pulse arrives later the lower its frequency, by an amount
// that depends on the unknown dispersion measure (DM). For each trial DM the channels are shifted back and summed:
//     out[dm, t] = sum over channels c of in[c, t + delays[dm, c]]
// out is dms x samples, in is channels x in_samples, delays is dms x channels, all row-major; the brute-force scheme of AMBER
// (Sclocco et al. 2016).
//
// There is one addition for each value loaded, so this lives on caches and loads. Trial DMs with similar delays read nearly the
// same input: a register tile of DT trials and NT samples uses a cache line several times, at delays that align with nothing.
//
// Returns the milliseconds of the sum alone, as Kernel Tuner's C backend expects.

#include <algorithm>
#include <chrono>

#ifndef NT
#define NT 16 // samples of the register tile
#endif
#ifndef DT
#define DT 2 // trial DMs of the register tile
#endif
#ifndef VW
#define VW 4 // floats in a vector; 1 leaves the choice to the compiler's own vectorizer
#endif
#ifndef CB
#define CB 256 // channels that are summed before the tile is stored
#endif
#ifndef CU
#define CU 1 // unrolling of the loop over channels
#endif
#ifndef BT
#define BT 4096 // samples of a block
#endif
#ifndef ORDER
#define ORDER 0 // 0: trials outside, samples inside, so that delays stay near; 1: the reverse, so that the input stays near
#endif

namespace {

// A vector wider than the machine's would live in memory, not in registers: it is split into parts.
#ifdef __AVX__
constexpr int part = VW < 8 ? VW : 8;
#else
constexpr int part = VW < 4 ? VW : 4;
#endif
constexpr int NV = NT / part; // vectors in a row of the register tile
constexpr int unroll_c = CU;
#if VW == 1
typedef float vec;
#else
typedef float vec __attribute__((vector_size(4 * part), aligned(4)));
#endif

struct Problem {
    float *out;
    const float *in;
    const int *delays;
    int channels, dms, samples, in_samples;
};

inline vec load(const float *p) { return *reinterpret_cast<const vec *>(p); }

// out[dm : dm + DT, t : t + NT] over channels first..last - 1, added to what is there unless they are the first.
void tile(const Problem &p, int dm, int t, int first, int last) {
    vec sum[DT][NV] = {};
    if (first > 0)
        for (int d = 0; d < DT; ++d)
            for (int v = 0; v < NV; ++v) sum[d][v] = load(p.out + (dm + d) * p.samples + t + v * part);
    const int *delays = p.delays + dm * p.channels;
#pragma GCC unroll unroll_c
    for (int c = first; c < last; ++c) {
        const float *row = p.in + c * p.in_samples + t;
#pragma GCC unroll 16
        for (int d = 0; d < DT; ++d) {
            const float *shifted = row + delays[d * p.channels + c];
#pragma GCC unroll 64
            for (int v = 0; v < NV; ++v) sum[d][v] += load(shifted + v * part);
        }
    }
    for (int d = 0; d < DT; ++d)
        for (int v = 0; v < NV; ++v) *reinterpret_cast<vec *>(p.out + (dm + d) * p.samples + t + v * part) = sum[d][v];
}

// What is left where the register tile does not fit.
void edge(const Problem &p, int dm, int dm_end, int t, int t_end, int first, int last) {
    for (int d = dm; d < dm_end; ++d)
        for (int s = t; s < t_end; ++s) {
            float sum = first > 0 ? p.out[d * p.samples + s] : 0;
            for (int c = first; c < last; ++c) sum += p.in[c * p.in_samples + s + p.delays[d * p.channels + c]];
            p.out[d * p.samples + s] = sum;
        }
}

// Samples t..t_end - 1 of DT trials, or fewer at the end.
void strip(const Problem &p, int dm, int t, int t_end, int first, int last) {
    const int dm_end = std::min(dm + DT, p.dms);
    if (dm_end - dm == DT)
        for (; t + NT <= t_end; t += NT) tile(p, dm, t, first, last);
    edge(p, dm, dm_end, t, t_end, first, last);
}

void dedisperse(const Problem &p) {
    for (int first = 0; first < p.channels; first += CB) {
        const int last = std::min(first + CB, p.channels);
        if (ORDER == 0)
            for (int dm = 0; dm < p.dms; dm += DT)
                for (int t = 0; t < p.samples; t += BT) strip(p, dm, t, std::min(t + BT, p.samples), first, last);
        else
            for (int t = 0; t < p.samples; t += BT)
                for (int dm = 0; dm < p.dms; dm += DT) strip(p, dm, t, std::min(t + BT, p.samples), first, last);
    }
}

} // namespace

extern "C" float dedispersion(float *out, const float *in, const int *delays, int channels, int dms, int samples,
                              int in_samples) {
    const auto start = std::chrono::steady_clock::now();
    dedisperse({out, in, delays, channels, dms, samples, in_samples});
    const std::chrono::duration<float, std::milli> elapsed = std::chrono::steady_clock::now() - start;
    return elapsed.count();
}
