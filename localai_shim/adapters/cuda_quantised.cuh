// Products with quantised weights of 4 or 8 bits, for MLX's kernels that are compiled at run time.
#pragma once

namespace localai_shim {

template <typename T> constexpr bool is_half = false;
template <> constexpr bool is_half<__half> = true;

template <int N> struct alignas(2 * N) Halves { unsigned short at[N]; };

template <typename T> float widened(unsigned short bits) {
  if constexpr (is_half<T>) return __half2float(__ushort_as_half(bits));
  else return __uint_as_float(unsigned(bits) << 16);
}

template <typename T> unsigned pair(float low, float high) {
  unsigned d;
  if constexpr (is_half<T>) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

template <typename T> unsigned fma_pair(unsigned a, unsigned b, unsigned c) {
  unsigned d;
  if constexpr (is_half<T>) asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  else asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// 16 x 16 of `a` times 16 x 8 of `b`. Lane 4 g + t has of `a` the rows g (a0, a2) and g + 8 (a1, a3), of `b` the column
// g, and of both the places 2 t, 2 t + 1 (a0, a1, b0) and those and eight (a2, a3, b1) of the 16 that are added up.
template <typename T>
void add_product(float* c, unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  if constexpr (is_half<T>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Sixteen weights that follow each other in pairs, in the order that `in_order_of_weights` gives inputs.
template <typename T, int BITS>
void unpack16(const unsigned* words, unsigned short scale, unsigned short bias, unsigned* out) {
  if constexpr (BITS == 4) {
    // Behind the leading bits of 1024 (128 in bfloat16) a weight is a number that lacks just that.
    constexpr unsigned MAGIC = is_half<T> ? 0x64006400 : 0x43004300, LESS = is_half<T> ? 0xE400E400 : 0xC300C300;
    constexpr unsigned ONE = is_half<T> ? 0x3C003C00 : 0x3F803F80;
    const unsigned scales = scale * 0x10001u, biases = bias * 0x10001u;
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const unsigned v = (words[i / 4] >> (4 * (i % 4)) & 0x000F000F) | MAGIC;
      out[i] = fma_pair<T>(fma_pair<T>(v, ONE, LESS), scales, biases);
    }
  } else {
    constexpr unsigned MAGIC = 0x4B000000;  // of 2^23 in float32
    const float s = widened<T>(scale), b = widened<T>(bias);
    #pragma unroll
    for (int i = 0; i < 8; i++) {
      const unsigned v = words[i / 2];
      const float low = __uint_as_float(__byte_perm(v, MAGIC, 0x7440 + i % 2 * 2)) - 8388608.0f;
      const float high = __uint_as_float(__byte_perm(v, MAGIC, 0x7441 + i % 2 * 2)) - 8388608.0f;
      out[i] = pair<T>(fmaf(low, s, b), fmaf(high, s, b));
    }
  }
}

template <int BITS> void in_order_of_weights(uint4 a, uint4 b, unsigned* out) {
  if constexpr (BITS == 4) {
    out[0] = __byte_perm(a.x, a.z, 0x5410), out[1] = __byte_perm(a.x, a.z, 0x7632);
    out[2] = __byte_perm(a.y, a.w, 0x5410), out[3] = __byte_perm(a.y, a.w, 0x7632);
    out[4] = __byte_perm(b.x, b.z, 0x5410), out[5] = __byte_perm(b.x, b.z, 0x7632);
    out[6] = __byte_perm(b.y, b.w, 0x5410), out[7] = __byte_perm(b.y, b.w, 0x7632);
  } else {
    out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
  }
}

// Block (rows, outputs): 8 TILES rows of x by 16 STACKS outputs. Its warps share the inputs, and add up at the end.
// A warp takes STEP inputs at a time, in blocks of 64: lane 4 g + t the inputs 16 t and on, of the output and row g.
template <typename T, int BITS, int GROUP, int TILES, int STACKS, int WARPS, typename S>
void multiply(
    const T* x, const S& shape, int ndim, const uint32_t* w, const T* scales, const T* biases, T* out, int outputs) {
  constexpr int WORDS = BITS / 2, BLOCKS = 16 / BITS, STEP = 64 * BLOCKS, GROUPS = STEP > GROUP ? STEP / GROUP : 1;
  constexpr int ALL = WARPS * STACKS * TILES * 132, MOST = 12288;  // numbers in shared memory
  constexpr int PART = ALL <= MOST ? TILES : ALL / 2 <= MOST && TILES % 2 == 0 ? TILES / 2 : 1;
  constexpr int OUTPUTS = 16 * STACKS;
  __shared__ float sums[WARPS][STACKS * PART * 4][33];
  int rows = 1;
  for (int i = 0; i + 1 < ndim; i++) rows *= shape[i];
  const int inputs = shape[ndim - 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4, row0 = blockIdx.x * 8 * TILES, first = blockIdx.y * OUTPUTS;
  float acc[STACKS][TILES][4] = {};
  const T* xs[TILES];
  #pragma unroll
  for (int j = 0; j < TILES; j++) xs[j] = x + int64_t(min(row0 + 8 * j + g, rows - 1)) * inputs + 16 * t;
  for (int k = warp * STEP; k < inputs; k += WARPS * STEP) {
    unsigned words[STACKS][2][BLOCKS][WORDS];
    Halves<GROUPS> scale[STACKS][2], bias[STACKS][2];
    #pragma unroll
    for (int r = 0; r < STACKS; r++) {
      #pragma unroll
      for (int h = 0; h < 2; h++) {
        const int64_t output = first + 16 * r + 8 * h + g;
        const uint32_t* from = w + output * (inputs / 32 * BITS) + k / 32 * BITS + t * WORDS;
        #pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
          unsigned* d = words[r][h][b];
          if constexpr (WORDS == 2)
            asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];"
                : "=r"(d[0]), "=r"(d[1]) : "l"(from + b * 2 * BITS));
          else
            asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "l"(from + b * 2 * BITS));
        }
        const int64_t at = output * (inputs / GROUP) + k / GROUP;
        scale[r][h] = *reinterpret_cast<const Halves<GROUPS>*>(scales + at);
        bias[r][h] = *reinterpret_cast<const Halves<GROUPS>*>(biases + at);
      }
    }
    #pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      unsigned a[STACKS][2][8];
      #pragma unroll
      for (int r = 0; r < STACKS; r++) {
        #pragma unroll
        for (int h = 0; h < 2; h++) {
          const int i = 64 * b / GROUP;
          unsigned short s = scale[r][h].at[i], z = bias[r][h].at[i];
          if constexpr (GROUP == 32) {
            if (t > 1) s = scale[r][h].at[i + 1], z = bias[r][h].at[i + 1];
          }
          unpack16<T, BITS>(words[r][h][b], s, z, a[r][h]);
        }
      }
      #pragma unroll
      for (int j = 0; j < TILES; j++) {
        const auto* from = reinterpret_cast<const uint4*>(xs[j] + k + 64 * b);
        unsigned z[8];
        in_order_of_weights<BITS>(from[0], from[1], z);
        #pragma unroll
        for (int s = 0; s < 8; s += 2) {
          #pragma unroll
          for (int r = 0; r < STACKS; r++)
            add_product<T>(acc[r][j], a[r][0][s], a[r][1][s], a[r][0][s + 1], a[r][1][s + 1], z[s], z[s + 1]);
        }
      }
    }
  }
  #pragma unroll
  for (int j0 = 0; j0 < TILES; j0 += PART) {
    if (row0 + 8 * j0 >= rows) break;
    if (j0) __syncthreads();
    #pragma unroll
    for (int r = 0; r < STACKS; r++) {
      #pragma unroll
      for (int j = 0; j < PART; j++) {
        #pragma unroll
        for (int c = 0; c < 4; c++) sums[warp][(r * PART + j) * 4 + c][lane] = acc[r][j0 + j][c];
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < OUTPUTS * PART * 8; i += WARPS * 32) {
      const int n = i % OUTPUTS, m = i / OUTPUTS, row = row0 + 8 * j0 + m;
      if (row >= rows) break;
      const int place = (n / 16 * PART + m / 8) * 4 + n % 16 / 8 * 2 + m % 2, from = n % 8 * 4 + m % 8 / 2;
      float sum = 0;
      #pragma unroll
      for (int v = 0; v < WARPS; v++) sum += sums[v][place][from];
      out[int64_t(row) * outputs + first + n] = T(sum);
    }
  }
}

// Eight weights a thread.
template <typename T, int BITS, int GROUP>
void unpack(const uint32_t* w, const T* scales, const T* biases, T* out) {
  constexpr int WORDS = BITS / 4, EACH = 32 / BITS;
  constexpr unsigned ONES = (1 << BITS) - 1;
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const float s = widened<T>(reinterpret_cast<const unsigned short*>(scales)[i / (GROUP / 8)]);
  const float b = widened<T>(reinterpret_cast<const unsigned short*>(biases)[i / (GROUP / 8)]);
  unsigned y[4];
  #pragma unroll
  for (int j = 0; j < 4; j++) {
    const unsigned v = w[i * WORDS + 2 * j / EACH] >> (2 * j % EACH * BITS);
    y[j] = pair<T>(fmaf(float(v & ONES), s, b), fmaf(float(v >> BITS & ONES), s, b));
  }
  reinterpret_cast<uint4*>(out)[i] = make_uint4(y[0], y[1], y[2], y[3]);
}

}  // namespace localai_shim
