// What rows' adapters add to a layer's products, for MLX's kernels that are compiled at run time.
#pragma once

namespace localai_shim {

template <typename T> float number(T value) { return static_cast<float>(value); }

// Eight numbers that lie side by side, read and written at once.
template <typename T> struct alignas(16) Eight { T at[8]; };

// out[row] = y[row] + x[row] a[slot of the row] b[slot of the row]. A block has a row and some of the outputs; it makes
// all of the row's small product, which costs less than a second kernel's launch. Slot 0 adds nothing.
template <typename T, int RANK>
__device__ void add_adapters(
    const T* x, const T* a, const T* b, const T* y, const unsigned* index, T* out, int inputs, int outputs, int tokens,
    int block) {
  constexpr int WARPS = 8, EACH = (RANK + WARPS - 1) / WARPS;
  __shared__ float low[EACH * WARPS];
  const int row = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const unsigned slot = index[row / tokens];
  if (slot != 0) {
    const T* from = x + size_t(row) * inputs;
    const T* factors = a + size_t(slot) * RANK * inputs;
    float sums[EACH] = {};
    #pragma unroll 2
    for (int i = lane * 8; i < inputs; i += 256) {
      const auto given = *reinterpret_cast<const Eight<T>*>(from + i);
      #pragma unroll
      for (int n = 0; n < EACH; n++) {
        const int rank = warp + n * WARPS;
        if (rank >= RANK) break;
        const auto factor = *reinterpret_cast<const Eight<T>*>(factors + size_t(rank) * inputs + i);
        #pragma unroll
        for (int j = 0; j < 8; j++) sums[n] += number(given.at[j]) * number(factor.at[j]);
      }
    }
    #pragma unroll
    for (int n = 0; n < EACH; n++) {
      for (int step = 16; step; step /= 2) sums[n] += __shfl_xor_sync(0xFFFFFFFF, sums[n], step);
      if (lane == 0) low[warp + n * WARPS] = sums[n];
    }
    __syncthreads();
  }
  const int column = (block * WARPS * 32 + threadIdx.x) * 8;
  if (column >= outputs) return;
  auto result = *reinterpret_cast<const Eight<T>*>(y + size_t(row) * outputs + column);
  if (slot != 0) {
    const T* factors = b + size_t(slot) * RANK * outputs + column;
    float sums[8];
    #pragma unroll
    for (int j = 0; j < 8; j++) sums[j] = number(result.at[j]);
    #pragma unroll 8
    for (int rank = 0; rank < RANK; rank++) {
      const auto factor = *reinterpret_cast<const Eight<T>*>(factors + size_t(rank) * outputs);
      #pragma unroll
      for (int j = 0; j < 8; j++) sums[j] += low[rank] * number(factor.at[j]);
    }
    #pragma unroll
    for (int j = 0; j < 8; j++) result.at[j] = T(sums[j]);
  }
  *reinterpret_cast<Eight<T>*>(out + size_t(row) * outputs + column) = result;
}

}  // namespace localai_shim
