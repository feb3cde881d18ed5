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
  if constexpr (BITS == 16) {
    #pragma unroll
    for (int i = 0; i < 8; i++) out[i] = words[i];
  } else if constexpr (BITS == 4) {
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

// Weights are read once.
template <int WORDS> void load_words(const uint32_t* from, unsigned* d) {
  if constexpr (WORDS == 2)
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(d[0]), "=r"(d[1]) : "l"(from));
  else {
    #pragma unroll
    for (int i = 0; i < WORDS; i += 4)
      asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
          : "=r"(d[i]), "=r"(d[i + 1]), "=r"(d[i + 2]), "=r"(d[i + 3]) : "l"(from + i));
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

// A product takes a multiple of what starting it does: so many tiles have theirs at once.
constexpr int at_once(int tiles) { return tiles % 5 == 0 ? 5 : tiles % 4 == 0 ? 4 : tiles % 2 == 0 ? 2 : 1; }

template <typename T, int STACKS, int AT_ONCE, int TILES>
void add_products(
    float (&acc)[STACKS][TILES][4], int j0, const unsigned (&a)[STACKS][2][8], const unsigned (&z)[AT_ONCE][8]) {
  #pragma unroll
  for (int s = 0; s < 8; s += 2) {
    #pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
      #pragma unroll
      for (int r = 0; r < STACKS; r++)
        add_product<T>(
            acc[r][j0 + j], a[r][0][s], a[r][1][s], a[r][0][s + 1], a[r][1][s + 1], z[j][s], z[j][s + 1]);
    }
  }
}

// Block (rows, outputs): 8 TILES rows of x by 16 STACKS outputs. Its warps share the inputs, and add up at the end.
// A warp takes STEP inputs at a time, in blocks of 64: lane 4 g + t the inputs 16 t and on, of the output and row g.
template <typename T, int BITS, int GROUP, int TILES, int STACKS, int WARPS, typename S>
void multiply(
    const T* x, const S& shape, int ndim, const uint32_t* w, const T* scales, const T* biases, T* out, int outputs,
    int block) {
  constexpr int WORDS = BITS / 2, BLOCKS = 16 / BITS, STEP = 64 * BLOCKS, GROUPS = STEP > GROUP ? STEP / GROUP : 1;
  constexpr int ALL = WARPS * STACKS * TILES * 132, MOST = 12288;  // numbers in shared memory
  constexpr int PART = ALL <= MOST ? TILES : ALL / 2 <= MOST && TILES % 2 == 0 ? TILES / 2 : 1;
  constexpr int OUTPUTS = 16 * STACKS, AT_ONCE = at_once(TILES);
  __shared__ float sums[WARPS][STACKS * PART * 4][33];
  int rows = 1;
  for (int i = 0; i + 1 < ndim; i++) rows *= shape[i];
  const int inputs = shape[ndim - 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4, row0 = blockIdx.x * 8 * TILES, first = block * OUTPUTS;
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
          load_words<WORDS>(from + b * 2 * BITS, d);
        }
        if constexpr (BITS < 16) {
          const int64_t at = output * (inputs / GROUP) + k / GROUP;
          scale[r][h] = *reinterpret_cast<const Halves<GROUPS>*>(scales + at);
          bias[r][h] = *reinterpret_cast<const Halves<GROUPS>*>(biases + at);
        }
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
          unsigned short s = 0, z = 0;
          if constexpr (BITS < 16) s = scale[r][h].at[i], z = bias[r][h].at[i];
          if constexpr (GROUP == 32) {
            if (t > 1) s = scale[r][h].at[i + 1], z = bias[r][h].at[i + 1];
          }
          unpack16<T, BITS>(words[r][h][b], s, z, a[r][h]);
        }
      }
      #pragma unroll
      for (int j0 = 0; j0 < TILES; j0 += AT_ONCE) {
        unsigned z[AT_ONCE][8];
        #pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
          const auto* from = reinterpret_cast<const uint4*>(xs[j0 + j] + k + 64 * b);
          in_order_of_weights<BITS>(from[0], from[1], z[j]);
        }
        add_products<T, STACKS, AT_ONCE>(acc, j0, a, z);
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

// Has 16 bytes copied into shared memory, or zeros.
inline void copy16(unsigned to, const void* from, bool there = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(from), "r"(there ? 16 : 0));
}

inline void copy8(unsigned to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(to), "l"(from));
}

#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000

#define C4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define C20(i) C4(i), C4(i + 4), C4(i + 8), C4(i + 12), C4(i + 16)

// Four warps: 64 x 16 of `a`, in registers as for `add_product` or in shared memory, times 16 x ROWS of `b`, which
// stand in shared memory.
template <typename T, int ROWS> void add_large_product(float* c, const unsigned* a, uint64_t b);
template <typename T, int ROWS> void add_large_product(float* c, uint64_t a, uint64_t b);

#define LARGE_PRODUCTS(T, TYPE) \
  template <> inline void add_large_product<T, 80>(float* c, const unsigned* a, uint64_t b) { \
    asm volatile( \
        "wgmma.mma_async.sync.aligned.m64n80k16.f32." TYPE "." TYPE " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " \
        "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
        "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39}, {%40, %41, %42, %43}, %44, 1, 1, 1, 0;" \
        : C20(0), C20(20) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)); \
  } \
 \
  template <> inline void add_large_product<T, 80>(float* c, uint64_t a, uint64_t b) { \
    asm volatile( \
        "wgmma.mma_async.sync.aligned.m64n80k16.f32." TYPE "." TYPE " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " \
        "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
        "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, " \
        "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39}, %40, %41, 1, 1, 1, 0, 0;" \
        : C20(0), C20(20) : "l"(a), "l"(b)); \
  } \
 \
  template <> inline void add_large_product<T, 40>(float* c, uint64_t a, uint64_t b) { \
    asm volatile( \
        "wgmma.mma_async.sync.aligned.m64n40k16.f32." TYPE "." TYPE " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " \
        "%10, %11, %12, %13, %14, %15, %16, %17, %18, %19}, %20, %21, 1, 1, 1, 0, 0;" \
        : C20(0) : "l"(a), "l"(b)); \
  }

LARGE_PRODUCTS(__nv_bfloat16, "bf16")
LARGE_PRODUCTS(__half, "f16")

// What stands in shared memory from there on, 128 bytes of each row, the 16s of them in another order for each row.
inline uint64_t described(unsigned from) {
  return uint64_t(1) << 62 | uint64_t(64) << 32 | uint64_t(1) << 16 | (from & 0x3FFFF) >> 4;
}

// Two weights that follow each other: 2 t and 2 t + 1 of eight, which a word has (with 8 bits: half of them).
template <typename T, int BITS> unsigned unpack2(unsigned word, int t, unsigned scales, unsigned biases) {
  if constexpr (BITS == 4) {
    constexpr unsigned MAGIC = is_half<T> ? 0x64006400 : 0x43004300, LESS = is_half<T> ? 0xE400E400 : 0xC300C300;
    constexpr unsigned ONE = is_half<T> ? 0x3C003C00 : 0x3F803F80;
    const unsigned v = __byte_perm(word, word >> 4, t | (4 + t) << 8) & 0x000F000F | MAGIC;
    return fma_pair<T>(fma_pair<T>(v, ONE, LESS), scales, biases);
  } else {
    constexpr unsigned MAGIC = 0x4B000000;
    const float s = widened<T>(scales & 0xFFFF), b = widened<T>(biases & 0xFFFF);
    const float low = __uint_as_float(__byte_perm(word, MAGIC, 0x7440 + t % 2 * 2)) - 8388608.0f;
    const float high = __uint_as_float(__byte_perm(word, MAGIC, 0x7441 + t % 2 * 2)) - 8388608.0f;
    return pair<T>(fmaf(low, s, b), fmaf(high, s, b));
  }
}

// The same for many rows, on Hopper: block (rows, outputs) of ROWS x TILES rows by 64 ACROSS outputs. Groups of four
// warps compute 64 outputs each, DEEP of them the same ones, of a share of the inputs. 64 inputs are a step; those of
// STAGES steps are copied into shared memory, ahead of what is computed: x, weights, and, where these are packed, for
// four groups of weights at once, scales and biases.
template <typename T, int BITS, int GROUP, int ROWS, int TILES, int ACROSS, int DEEP, int STAGES, typename S>
void multiply_many(
    const T* x, const S& shape, int ndim, const uint32_t* w, const T* scales, const T* biases, T* out, int outputs,
    int block) {
  constexpr int ALL = ROWS * TILES, FOURS = ACROSS * DEEP, THREADS = 128 * FOURS, NUMBERS = ROWS / 2;
  constexpr int X_BYTES = ALL * 128, W_BYTES = 64 * 8 * BITS, SLOTS = 4, S_STEPS = 4 * GROUP / 64;
  constexpr int CHUNKS = DEEP * ALL * 8, COPIES = (CHUNKS + THREADS - 1) / THREADS;
  extern __shared__ char shared[];
  const unsigned begin = unsigned(__cvta_generic_to_shared(shared)), x_at = (begin + 1023) / 1024 * 1024;
  char* const at = shared + (x_at - begin);
  // [STAGES][DEEP][rows][128], [STAGES][four][64][8 BITS], [SLOTS][four][2][64][8]
  constexpr int W_FROM = STAGES * DEEP * X_BYTES, S_FROM = W_FROM + STAGES * FOURS * W_BYTES;
  int rows = 1;
  for (int i = 0; i + 1 < ndim; i++) rows *= shape[i];
  const int inputs = shape[ndim - 1], share = inputs / DEEP, steps = share / 64;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, four = warp / 4, across = four % ACROSS;
  const int deep = four / ACROSS, g = lane / 4, t = lane % 4, row0 = blockIdx.x * ALL, within = threadIdx.x % 128;
  const int output0 = (block * ACROSS + across) * 64, mine = warp % 4 * 16 + g;  // and eight behind
  const T* copied[COPIES];
  unsigned to[COPIES];
  bool there[COPIES];
  #pragma unroll
  for (int n = 0; n < COPIES; n++) {
    const int i = threadIdx.x + n * THREADS, c = i % 8, row = i / 8 % ALL, d = min(i / (8 * ALL), DEEP - 1);
    there[n] = row0 + row < rows;
    copied[n] = x + int64_t(there[n] ? row0 + row : 0) * inputs + share * d + 8 * c;
    to[n] = x_at + d * X_BYTES + row * 128 + (c ^ row % 8) * 16;
  }
  constexpr int W_COPIES = BITS / 4, W_EACH = BITS / 2;  // of 16 bytes: of each thread, of each output
  const char* w_from[W_COPIES];
  unsigned w_to[W_COPIES];
  #pragma unroll
  for (int n = 0; n < W_COPIES; n++) {
    const int i = within + 128 * n, c = i % W_EACH, row = i / W_EACH;
    w_from[n] = reinterpret_cast<const char*>(w) +
        (int64_t(output0 + row) * inputs + share * deep) / 8 * BITS + 16 * c;
    w_to[n] = x_at + W_FROM + four * W_BYTES + row * (8 * BITS) + (BITS == 16 ? c ^ row % 8 : c) * 16;
  }
  const T* s_from = (within < 64 ? scales : biases) + (int64_t(output0 + within % 64) * inputs + share * deep) / GROUP;
  const unsigned s_to = x_at + S_FROM + (four * 128 + within) * 8;
  auto stage = [&](int step) {
    if (step < steps) {
      const int slot = step % STAGES;
      #pragma unroll
      for (int n = 0; n < COPIES; n++) {
        if ((n + 1) * THREADS <= CHUNKS || threadIdx.x + n * THREADS < CHUNKS)
          copy16(to[n] + slot * (DEEP * X_BYTES), copied[n] + step * 64, there[n]);
      }
      #pragma unroll
      for (int n = 0; n < W_COPIES; n++)
        copy16(w_to[n] + slot * (FOURS * W_BYTES), w_from[n] + step * (8 * BITS));
      if (BITS < 16 && step % S_STEPS == 0)
        copy8(s_to + step / S_STEPS % SLOTS * (FOURS * 1024), s_from + step / S_STEPS * 4);
    }
    asm volatile("cp.async.commit_group;");
  };
  auto unpack = [&](int step, unsigned (&a)[4][4]) {
    #pragma unroll
    for (int h = 0; h < 2; h++) {
      const char* from = at + W_FROM + (step % STAGES * FOURS + four) * W_BYTES + (mine + 8 * h) * (8 * BITS);
      const char* sp = at + S_FROM + (step / S_STEPS % SLOTS * FOURS + four) * 1024 + (mine + 8 * h) * 8;
      sp += step % S_STEPS * 64 / GROUP * 2;
      unsigned words[8];
      if constexpr (BITS == 4) {
        const uint4 u = reinterpret_cast<const uint4*>(from)[0], v = reinterpret_cast<const uint4*>(from)[1];
        words[0] = u.x, words[1] = u.y, words[2] = u.z, words[3] = u.w;
        words[4] = v.x, words[5] = v.y, words[6] = v.z, words[7] = v.w;
      } else {
        #pragma unroll
        for (int i = 0; i < 8; i++) words[i] = reinterpret_cast<const unsigned*>(from)[2 * i + t / 2];
      }
      #pragma unroll
      for (int i = 0; i < 8; i++) {
        const int half = GROUP == 32 ? i / 4 : 0;
        const unsigned scale = reinterpret_cast<const unsigned short*>(sp)[half] * 0x10001u;
        const unsigned bias = reinterpret_cast<const unsigned short*>(sp + 512)[half] * 0x10001u;
        a[i / 2][i % 2 * 2 + h] = unpack2<T, BITS>(words[i], t, scale, bias);
      }
    }
  };
  float acc[TILES][NUMBERS] = {};
  unsigned a[2][4][4];
  auto run = [&](int step, unsigned (&now)[4][4], unsigned (&following)[4][4]) {
    asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 3));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (BITS < 16 && step == 0) unpack(0, now);
    const uint64_t xs = described(x_at + (step % STAGES * DEEP + deep) * X_BYTES);
    const uint64_t ws = described(x_at + W_FROM + (step % STAGES * FOURS + four) * W_BYTES);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    #pragma unroll
    for (int s = 0; s < 4; s++) {
      #pragma unroll
      for (int j = 0; j < TILES; j++) {
        const uint64_t b = xs + j * (ROWS * 8) + 2 * s;
        if constexpr (BITS == 16) add_large_product<T, ROWS>(acc[j], ws + 2 * s, b);
        else add_large_product<T, ROWS>(acc[j], now[s], b);
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    stage(step + STAGES - 1);
    if (BITS < 16 && step + 1 < steps) unpack(step + 1, following);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  };
  #pragma unroll
  for (int i = 0; i < STAGES - 1; i++) stage(i);
  for (int step = 0; step < steps; step += 2) {
    run(step, a[0], a[1]);
    if (step + 1 < steps) run(step + 1, a[1], a[0]);
  }
  asm volatile("cp.async.wait_group 0;");
  __syncthreads();
  float* sums = reinterpret_cast<float*>(at);  // [deep][across][numbers][threads]
  if (deep > 0) {
    float* here = sums + ((deep - 1) * ACROSS + across) * (TILES * NUMBERS * 128) + within;
    #pragma unroll
    for (int i = 0; i < TILES * NUMBERS; i++) here[128 * i] = acc[i / NUMBERS][i % NUMBERS];
  }
  __syncthreads();
  if (deep > 0) return;
  #pragma unroll
  for (int i = 0; i < TILES * NUMBERS; i++) {
    const int n = i % NUMBERS, row = row0 + i / NUMBERS * ROWS + n / 4 * 8 + 2 * t + n % 2;
    float sum = acc[i / NUMBERS][n];
    #pragma unroll
    for (int d = 1; d < DEEP; d++)
      sum += sums[((d - 1) * ACROSS + across) * (TILES * NUMBERS * 128) + 128 * i + within];
    if (row < rows) out[int64_t(row) * outputs + output0 + mine + n / 2 % 2 * 8] = T(sum);
  }
}

#undef LARGE_PRODUCTS
#undef C20
#undef C4
#endif

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
