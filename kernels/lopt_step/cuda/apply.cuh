// Pass 5: features once more, the network, the parameter.
#pragma once
#include "network_fp32.cuh"
#include "network_tf32.cuh"

namespace lopt {

template <bool VELO, int H, int N, class Network>
__global__ void __launch_bounds__(THREADS, RESIDENT) apply_kernel(const Step step) {
    __shared__ Work work;
    __shared__ Weights<VELO, H> weights;
    __shared__ Columns<N> columns;
    __shared__ Shares<N, H> shares;
    __shared__ Network network;
    for (index_t i = blockIdx.x; i < step.tile_count; i += gridDim.x) {
        work.open_tile(step, i);
        const Tile& tile = work.tile;
        const Tensor& t = work.t;
        const GradientRule rule(step, tile.tensor);
        const Factors factors(step, t, tile.tensor);
        const Update update(step, tile.tensor);
        weights.stage(step, t, tile.tensor);
        __syncthreads();
        network.stage(weights);
        for_each_panel<N>(tile, Network::ALIGNED, [&](const Panel<N>& panel) {
            Columns<N>::for_each(t, tile, panel, [&](int slot, index_t entry, index_t batch, index_t z) {
                columns.fill(factors, slot, entry, batch, z, Features<VELO>::DIAG_EPS);
                shares.fill(weights, t, slot, entry);
            });
            __syncthreads();
            network.run(t, tile, panel, rule, factors, weights, columns, shares, update);
            __syncthreads();
        });
    }
}

}  // namespace lopt
