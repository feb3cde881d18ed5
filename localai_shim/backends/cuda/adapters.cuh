// What rows' adapters add to a layer's products, for MLX's kernels that are compiled at run time.
#pragma once

namespace localai_shim {

template <typename T> float number(T value) { return static_cast<float>(value); }

// Eight numbers that lie side by side, read and written at once.
template <typename T> struct alignas(16) Eight { T at[8]; };

template <typename T> const Eight<T>& eight(const T* from) { return *reinterpret_cast<const Eight<T>*>(from); }

// Add the products of some numbers of a row with some of EACH factors, of which warps have every eighth. All are read
// before any is used: waiting for memory is what the kernel does.
template <typename T, int RANK, int INPUTS, int EACH, int COUNT>
__device__ void add_products(const T* from, const T* factors, int warp, float (&sums)[EACH]) {
  Eight<T> given[COUNT], factor[EACH][COUNT];
  #pragma unroll
  for (int i = 0; i < COUNT; i++) given[i] = eight(from + i * 256);
  #pragma unroll
  for (int n = 0; n < EACH; n++) {
    const int rank = min(warp + n * 8, RANK - 1);
    #pragma unroll
    for (int i = 0; i < COUNT; i++) factor[n][i] = eight(factors + size_t(rank) * INPUTS + i * 256);
  }
  #pragma unroll
  for (int n = 0; n < EACH; n++)
    #pragma unroll
    for (int i = 0; i < COUNT; i++)
      #pragma unroll
      for (int j = 0; j < 8; j++) sums[n] += number(given[i].at[j]) * number(factor[n][i].at[j]);
}

// out[row] = y[row] + x[row] a[slot of the row] b[slot of the row]. A block has a row and some of the outputs; it makes
// all of the row's small product, which costs less than a second kernel's launch. Slot 0 adds nothing.
template <typename T, int RANK, int INPUTS, int OUTPUTS>
__device__ void add_adapters(
    const T* x, const T* a, const T* b, const T* y, const unsigned* index, T* out, int tokens, int block) {
  constexpr int WARPS = 8, EACH = (RANK + WARPS - 1) / WARPS;
  constexpr int COUNT = EACH <= 2 ? 8 : EACH <= 4 ? 4 : 2;
  constexpr int EARLY = RANK < 16 ? RANK : 16;  // factors of an output that are read before the small product is there
  __shared__ float low[EACH * WARPS];
  const int row = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int column = (block * WARPS * 32 + threadIdx.x) * 8;
  const bool writes = column < OUTPUTS;
  const unsigned slot = index[row / tokens];
  Eight<T> result, early[EARLY];
  if (writes) result = eight(y + size_t(row) * OUTPUTS + column);
  if (slot != 0) {
    const T* from = x + size_t(row) * INPUTS;
    const T* factors = a + size_t(slot) * RANK * INPUTS;
    float sums[EACH] = {};
    int i = lane * 8;
    for (; i + (COUNT - 1) * 256 < INPUTS; i += COUNT * 256)
      add_products<T, RANK, INPUTS, EACH, COUNT>(from + i, factors + i, warp, sums);
    for (; i < INPUTS; i += 256) add_products<T, RANK, INPUTS, EACH, 1>(from + i, factors + i, warp, sums);
    factors = b + size_t(slot) * RANK * OUTPUTS + column;
    #pragma unroll
    for (int rank = 0; rank < EARLY; rank++)
      if (writes) early[rank] = eight(factors + size_t(rank) * OUTPUTS);
    #pragma unroll
    for (int n = 0; n < EACH; n++) {
      for (int step = 16; step; step /= 2) sums[n] += __shfl_xor_sync(0xFFFFFFFF, sums[n], step);
      if (lane == 0) low[warp + n * WARPS] = sums[n];
    }
    __syncthreads();
    if (writes) {
      float made[8];
      #pragma unroll
      for (int j = 0; j < 8; j++) made[j] = number(result.at[j]);
      #pragma unroll
      for (int rank = 0; rank < EARLY; rank++)
        #pragma unroll
        for (int j = 0; j < 8; j++) made[j] += low[rank] * number(early[rank].at[j]);
      #pragma unroll 8
      for (int rank = EARLY; rank < RANK; rank++) {
        const auto factor = eight(factors + size_t(rank) * OUTPUTS);
        #pragma unroll
        for (int j = 0; j < 8; j++) made[j] += low[rank] * number(factor.at[j]);
      }
      #pragma unroll
      for (int j = 0; j < 8; j++) result.at[j] = T(made[j]);
    }
  }
  if (writes) *reinterpret_cast<Eight<T>*>(out + size_t(row) * OUTPUTS + column) = result;
}

}  // namespace localai_shim
