// Attention of one query per row, or a few, to keys that a mask chooses. See cuda_decode.py.
#pragma once

namespace localai_shim {

// Block (split, group of query heads, row). A key's dimensions lie across LANES lanes, 16 bytes each, so that a warp
// has TOK keys at once, U times. Scores are powers of two.
template <typename T, int D, int G, int WARPS, int U, bool SEVERAL, typename M, typename Shape, typename Strides>
void attend_split(
    const T* q, const Shape& q_shape, const Strides& q_strides, const T* k, const Shape& k_shape,
    const Strides& k_strides, const T* v, const Strides& v_strides, const M* mask, const Strides& mask_strides,
    float scale, float* sums, float* stats) {
  constexpr int VEC = 16 / sizeof(T);
  constexpr int USED = D / VEC;
  constexpr int LANES = USED <= 8 ? 8 : USED <= 16 ? 16 : 32;
  constexpr int TOK = 32 / LANES;
  constexpr int STRIDE = WARPS * TOK * U;
  constexpr unsigned ALL = 0xffffffff;
  constexpr float LEAST = -1e30f;
  __shared__ float shared_m[WARPS][G], shared_l[WARPS][G], shared_acc[WARPS][G][D];
  const int split = blockIdx.x, splits = gridDim.x, row = blockIdx.z;
  // A head here is a head and a token: all of a head's tokens, then the next head's.
  const int queries = q_shape[2], heads = int(q_shape[1]) * queries, sharing = heads / int(k_shape[1]);
  const int groups = gridDim.y / int(k_shape[1]);
  const int key_head = blockIdx.y / groups, begin = blockIdx.y % groups * G, head0 = key_head * sharing + begin;
  const int columns = k_shape[2];
  const int share = (columns + splits - 1) / splits;
  const int first = split * share, last = min(columns, first + share);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int sub = lane / LANES, part = lane % LANES;
  const bool active = part < USED;
  const T* kp = k + row * k_strides[0] + key_head * k_strides[1] + part * VEC;
  const T* vp = v + row * v_strides[0] + key_head * v_strides[1] + part * VEC;
  const auto* mp = mask + row * mask_strides[0];
  float qf[G][VEC], acc[G][VEC], m[G], l[G];
  int bit[G];
  #pragma unroll
  for (int g = 0; g < G; g++) {
    m[g] = LEAST;
    l[g] = 0;
    bit[g] = SEVERAL ? (begin + g) % queries : 0;
    const bool used = active && begin + g < sharing;
    const T* qp = q + row * q_strides[0] + (head0 + g) / queries * q_strides[1] + bit[g] * q_strides[2] + part * VEC;
    #pragma unroll
    for (int i = 0; i < VEC; i++) {
      acc[g][i] = 0;
      qf[g][i] = used ? float(qp[i]) * (scale * 1.44269504f) : 0.0f;
    }
  }
  for (int t0 = first + warp * TOK * U; t0 < last; t0 += STRIDE) {
    unsigned on[U], any = 0;
    #pragma unroll
    for (int u = 0; u < U; u++) {
      const int t = t0 + u * TOK + sub;
      on[u] = t < last ? unsigned(mp[t * mask_strides[3]]) : 0;
      any |= on[u];
    }
    if (!__any_sync(ALL, any)) continue;
    float s[U][G];
    uint4 raw[U];
    #pragma unroll
    for (int u = 0; u < U; u++) {
      raw[u] = make_uint4(0, 0, 0, 0);
      if (on[u] && active) raw[u] = *reinterpret_cast<const uint4*>(kp + (t0 + u * TOK + sub) * k_strides[2]);
    }
    #pragma unroll
    for (int u = 0; u < U; u++) {
      const T* x = reinterpret_cast<const T*>(&raw[u]);
      #pragma unroll
      for (int g = 0; g < G; g++) {
        float dot = 0;
        #pragma unroll
        for (int i = 0; i < VEC; i++) dot += qf[g][i] * float(x[i]);
        #pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2) dot += __shfl_xor_sync(ALL, dot, step);
        s[u][g] = on[u] >> bit[g] & 1 ? dot : LEAST;
      }
    }
    #pragma unroll
    for (int u = 0; u < U; u++) {
      raw[u] = make_uint4(0, 0, 0, 0);
      if (on[u] && active) raw[u] = *reinterpret_cast<const uint4*>(vp + (t0 + u * TOK + sub) * v_strides[2]);
    }
    #pragma unroll
    for (int g = 0; g < G; g++) {
      float top = m[g];
      #pragma unroll
      for (int u = 0; u < U; u++) top = max(top, s[u][g]);
      const float shrink = exp2f(m[g] - top);
      m[g] = top;
      l[g] *= shrink;
      #pragma unroll
      for (int i = 0; i < VEC; i++) acc[g][i] *= shrink;
      #pragma unroll
      for (int u = 0; u < U; u++) {
        s[u][g] = on[u] >> bit[g] & 1 ? exp2f(s[u][g] - top) : 0.0f;
        l[g] += s[u][g];
      }
    }
    #pragma unroll
    for (int u = 0; u < U; u++) {
      const T* x = reinterpret_cast<const T*>(&raw[u]);
      #pragma unroll
      for (int i = 0; i < VEC; i++) {
        const float y = float(x[i]);
        #pragma unroll
        for (int g = 0; g < G; g++) acc[g][i] += s[u][g] * y;
      }
    }
  }
  #pragma unroll
  for (int g = 0; g < G; g++) {
    #pragma unroll
    for (int step = LANES; step < 32; step *= 2) {
      const float other_m = __shfl_xor_sync(ALL, m[g], step), other_l = __shfl_xor_sync(ALL, l[g], step);
      const float top = max(m[g], other_m), a = exp2f(m[g] - top), b = exp2f(other_m - top);
      #pragma unroll
      for (int i = 0; i < VEC; i++) acc[g][i] = acc[g][i] * a + __shfl_xor_sync(ALL, acc[g][i], step) * b;
      l[g] = l[g] * a + other_l * b;
      m[g] = top;
    }
    if (sub == 0 && part == 0) {
      shared_m[warp][g] = m[g];
      shared_l[warp][g] = l[g];
    }
    if (sub == 0 && active) {
      #pragma unroll
      for (int i = 0; i < VEC; i++) shared_acc[warp][g][part * VEC + i] = acc[g][i];
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < G * D; at += WARPS * 32) {
    const int g = at / D, d = at % D;
    if (begin + g >= sharing) break;
    float top = LEAST, total = 0, weight = 0;
    #pragma unroll
    for (int w = 0; w < WARPS; w++) top = max(top, shared_m[w][g]);
    #pragma unroll
    for (int w = 0; w < WARPS; w++) {
      const float factor = exp2f(shared_m[w][g] - top);
      total += factor * shared_acc[w][g][d];
      weight += factor * shared_l[w][g];
    }
    const int64_t place = (int64_t(row) * heads + head0 + g) * splits + split;
    sums[place * D + d] = total;
    if (d == 0) {
      stats[place * 2] = top;
      stats[place * 2 + 1] = weight;
    }
  }
}

inline void add_product(float* c, const unsigned* a, unsigned b0, unsigned b1, __nv_bfloat16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

inline void add_product(float* c, const unsigned* a, unsigned b0, unsigned b1, __half) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

inline unsigned as_pair(float low, float high, __nv_bfloat16) {
  unsigned d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

inline unsigned as_pair(float low, float high, __half) {
  unsigned d;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

// The queries of a lane's two rows, `at` and `at + 8` of those that share a key head, in the places of a product.
template <typename T, int D, typename Strides>
inline void load_queries(
    unsigned (&qf)[D / 16][4], const T* q, const Strides& q_strides, int queries, int head0, int at, int sharing, int t) {
  #pragma unroll
  for (int h = 0; h < 2; h++) {
    const int mine = at + 8 * h;
    const bool used = mine < sharing;
    const T* qp = q + (head0 + mine) / queries * q_strides[1] + mine % queries * q_strides[2] + 8 * t;
    #pragma unroll
    for (int i = 0; i < D / 32; i++) {
      const uint4 x = used ? *reinterpret_cast<const uint4*>(qp + 32 * i) : make_uint4(0, 0, 0, 0);
      qf[2 * i][h] = x.x, qf[2 * i][2 + h] = x.y, qf[2 * i + 1][h] = x.z, qf[2 * i + 1][2 + h] = x.w;
    }
  }
}

// Turns 16 keys' scores into weights, by the running maximum m and sum l of each query, which sums in acc follow.
template <int N, typename Seen>
inline void weigh(float (&s)[2][4], float (&acc)[N][4], float (&m)[2], float (&l)[2], float power, const Seen& seen) {
  constexpr unsigned ALL = 0xffffffff;
  constexpr float LEAST = -1e30f;
  float shrink[2];
  #pragma unroll
  for (int h = 0; h < 2; h++) {
    float top = m[h];
    #pragma unroll
    for (int n = 0; n < 2; n++) {
      #pragma unroll
      for (int c = 0; c < 2; c++) {
        float& x = s[n][2 * h + c];
        x = seen(h, n, c) ? x * power : LEAST;
        top = max(top, x);
      }
    }
    top = max(top, __shfl_xor_sync(ALL, top, 1));
    top = max(top, __shfl_xor_sync(ALL, top, 2));
    shrink[h] = exp2f(m[h] - top);
    m[h] = top;
    l[h] *= shrink[h];
    #pragma unroll
    for (int n = 0; n < 2; n++) {
      #pragma unroll
      for (int c = 0; c < 2; c++) {
        float& x = s[n][2 * h + c];
        x = seen(h, n, c) ? exp2f(x - top) : 0.0f;
        l[h] += x;
      }
    }
  }
  if (__any_sync(ALL, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
    #pragma unroll
    for (int i = 0; i < N; i++) {
      #pragma unroll
      for (int c = 0; c < 4; c++) acc[i][c] *= shrink[c / 2];
    }
  }
}

// Adds 64 dimensions of 16 keys' values, times their weights.
template <typename T>
inline void add_values(float (*acc)[4], const unsigned (&weights)[4], const uint4 (&values)[4]) {
  const auto* low = reinterpret_cast<const unsigned*>(&values[0]);
  const auto* high = reinterpret_cast<const unsigned*>(&values[1]);
  const auto* low8 = reinterpret_cast<const unsigned*>(&values[2]);
  const auto* high8 = reinterpret_cast<const unsigned*>(&values[3]);
  #pragma unroll
  for (int j = 0; j < 8; j++) {
    const int which = j % 2 ? 0x7632 : 0x5410;
    add_product(
        acc[j], weights, __byte_perm(low[j / 2], high[j / 2], which), __byte_perm(low8[j / 2], high8[j / 2], which), T());
  }
}

// The same for several queries, on the tensor cores: 16 of those that share a key head, and 16 keys a warp at a time.
// Lane 4 g + t of a product has the rows g and g + 8 of what is on the left, the column g of what is on the right, and
// 2 t, 2 t + 1 and those and eight of the 16 places that are added up. Which dimension or key stands at a place is free,
// as long as both sides agree: so every lane reads 16 bytes that follow each other.
template <typename T, int D, typename M, typename Shape, typename Strides>
void attend_several_split(
    const T* q, const Shape& q_shape, const Strides& q_strides, const T* k, const Shape& k_shape,
    const Strides& k_strides, const T* v, const Strides& v_strides, const M* mask, const Strides& mask_strides,
    float scale, float* sums, float* stats) {
  constexpr int WARPS = 4, HALVES = D / 64, QUERIES = 16;
  constexpr unsigned ALL = 0xffffffff;
  constexpr float LEAST = -1e30f;
  __shared__ float shared_m[WARPS][QUERIES], shared_l[WARPS][QUERIES], shared_acc[WARPS][QUERIES][D + 4];
  const int split = blockIdx.x, splits = gridDim.x, row = blockIdx.z;
  const int queries = q_shape[2], heads = int(q_shape[1]) * queries, sharing = heads / int(k_shape[1]);
  const int groups = gridDim.y / int(k_shape[1]);
  const int key_head = blockIdx.y / groups, begin = blockIdx.y % groups * QUERIES, head0 = key_head * sharing;
  const int columns = k_shape[2];
  const int share = (columns + splits - 1) / splits;
  const int first = split * share, last = min(columns, first + share);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const T* kp = k + row * k_strides[0] + key_head * k_strides[1] + 8 * t;
  const T* vp = v + row * v_strides[0] + key_head * v_strides[1] + 8 * g;
  const auto* mp = mask + row * mask_strides[0];
  unsigned qf[D / 16][4];
  load_queries<T, D>(qf, q + row * q_strides[0], q_strides, queries, head0, begin + g, sharing, t);
  int bit[2];
  #pragma unroll
  for (int h = 0; h < 2; h++) bit[h] = begin + g + 8 * h < sharing ? (begin + g + 8 * h) % queries : 31;
  const float power = scale * 1.44269504f;
  float acc[8 * HALVES][4] = {}, m[2] = {LEAST, LEAST}, l[2] = {0, 0};
  for (int t0 = first + warp * 16; t0 < last; t0 += WARPS * 16) {
    unsigned on[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int key = t0 + i / 2 * 8 + 2 * t + i % 2;
      on[i] = key < last ? unsigned(mp[key * mask_strides[3]]) : 0;
    }
    if (!__any_sync(ALL, on[0] | on[1] | on[2] | on[3])) continue;
    uint4 keys[2][D / 32], values[4][HALVES];
    #pragma unroll
    for (int n = 0; n < 2; n++) {
      const int64_t at = int64_t(min(t0 + 8 * n + g, last - 1)) * k_strides[2];
      #pragma unroll
      for (int i = 0; i < D / 32; i++) keys[n][i] = *reinterpret_cast<const uint4*>(kp + at + 32 * i);
    }
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int64_t at = int64_t(t0 + i / 2 * 8 + 2 * t + i % 2) * v_strides[2];
      #pragma unroll
      for (int h = 0; h < HALVES; h++)
        values[i][h] = on[i] ? *reinterpret_cast<const uint4*>(vp + at + 64 * h) : make_uint4(0, 0, 0, 0);
    }
    float s[2][4] = {};
    #pragma unroll
    for (int n = 0; n < 2; n++) {
      #pragma unroll
      for (int i = 0; i < D / 32; i++) {
        add_product(s[n], qf[2 * i], keys[n][i].x, keys[n][i].y, T());
        add_product(s[n], qf[2 * i + 1], keys[n][i].z, keys[n][i].w, T());
      }
    }
    weigh(s, acc, m, l, power, [&](int h, int n, int c) { return on[2 * n + c] >> bit[h] & 1; });
    unsigned weights[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) weights[i] = as_pair(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1], T());
    #pragma unroll
    for (int h = 0; h < HALVES; h++) {
      const uint4 some[4] = {values[0][h], values[1][h], values[2][h], values[3][h]};
      add_values<T>(acc + 8 * h, weights, some);
    }
  }
  #pragma unroll
  for (int h = 0; h < 2; h++) {
    l[h] += __shfl_xor_sync(ALL, l[h], 1);
    l[h] += __shfl_xor_sync(ALL, l[h], 2);
    if (t == 0) shared_m[warp][g + 8 * h] = m[h], shared_l[warp][g + 8 * h] = l[h];
    #pragma unroll
    for (int i = 0; i < 8 * HALVES; i++) {
      #pragma unroll
      for (int c = 0; c < 2; c++)
        shared_acc[warp][g + 8 * h][i / 8 * 64 + 16 * t + 8 * c + i % 8] = acc[i][2 * h + c];
    }
  }
  __syncthreads();
  for (int at = threadIdx.x; at < QUERIES * D; at += WARPS * 32) {
    const int query = at / D, d = at % D;
    if (begin + query >= sharing) break;
    float top = LEAST, total = 0, weight = 0;
    #pragma unroll
    for (int w = 0; w < WARPS; w++) top = max(top, shared_m[w][query]);
    #pragma unroll
    for (int w = 0; w < WARPS; w++) {
      const float factor = exp2f(shared_m[w][query] - top);
      total += factor * shared_acc[w][query][d];
      weight += factor * shared_l[w][query];
    }
    const int64_t place = (int64_t(row) * heads + head0 + begin + query) * splits + split;
    sums[place * D + d] = total;
    if (d == 0) {
      stats[place * 2] = top;
      stats[place * 2 + 1] = weight;
    }
  }
}

// The same for many queries that all see all keys, `[1, heads, queries, D]`: each warp has 16 of those that share a key
// head, and 64 keys at a time are copied to shared memory for all of them. Rows of these copies are padded so that the
// lanes that read together read from different banks.
template <typename T, int D, int WARPS, typename Shape, typename Strides>
void attend_many_split(
    const T* q, const Shape& q_shape, const Strides& q_strides, const T* k, const Shape& k_shape,
    const Strides& k_strides, const T* v, const Strides& v_strides, float scale, float* sums, float* stats) {
  constexpr int HALVES = D / 64, KEYS = 64, K_ROW = D + 32, V_ROW = D + 8, CHUNKS = D / 8;
  constexpr int EACH = KEYS * CHUNKS / (WARPS * 32);
  constexpr unsigned ALL = 0xffffffff;
  constexpr float LEAST = -1e30f;
  __shared__ __align__(16) T shared_k[KEYS * K_ROW], shared_v[KEYS * V_ROW];
  const int split = blockIdx.x, splits = gridDim.x;
  const int queries = q_shape[2], heads = int(q_shape[1]) * queries, sharing = heads / int(k_shape[1]);
  const int groups = gridDim.y / int(k_shape[1]), columns = k_shape[2];
  const int share = (columns + splits - 1) / splits;
  const int first = split * share, last = min(columns, first + share);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int key_head = blockIdx.y / groups, begin = (blockIdx.y % groups * WARPS + warp) * 16;
  const int head0 = key_head * sharing;
  const bool works = begin < sharing;
  const T* kp = k + key_head * k_strides[1];
  const T* vp = v + key_head * v_strides[1];
  unsigned qf[D / 16][4];
  load_queries<T, D>(qf, q, q_strides, queries, head0, begin + g, sharing, t);
  const float power = scale * 1.44269504f;
  float acc[8 * HALVES][4] = {}, m[2] = {LEAST, LEAST}, l[2] = {0, 0};
  // The next keys are read while these are used.
  uint4 next_k[EACH], next_v[EACH];
  const auto fetch = [&](int tile) {
    #pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int at = threadIdx.x + i * WARPS * 32, chunk = at % CHUNKS * 8;
      const int64_t place = tile + at / CHUNKS;
      const uint4 zero = make_uint4(0, 0, 0, 0);
      next_k[i] = place < last ? *reinterpret_cast<const uint4*>(kp + place * k_strides[2] + chunk) : zero;
      next_v[i] = place < last ? *reinterpret_cast<const uint4*>(vp + place * v_strides[2] + chunk) : zero;
    }
  };
  fetch(first);
  for (int tile = first; tile < last; tile += KEYS) {
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < EACH; i++) {
      const int at = threadIdx.x + i * WARPS * 32, key = at / CHUNKS, chunk = at % CHUNKS * 8;
      *reinterpret_cast<uint4*>(shared_k + key * K_ROW + chunk) = next_k[i];
      *reinterpret_cast<uint4*>(shared_v + key * V_ROW + chunk) = next_v[i];
    }
    __syncthreads();
    if (tile + KEYS < last) fetch(tile + KEYS);
    if (!works) continue;
    for (int part = 0; part < KEYS && tile + part < last; part += 16) {
      float s[2][4] = {};
      #pragma unroll
      for (int n = 0; n < 2; n++) {
        #pragma unroll
        for (int i = 0; i < D / 32; i++) {
          const uint4 x =
              *reinterpret_cast<const uint4*>(shared_k + (part + 8 * n + g) * K_ROW + 8 * t + 32 * i);
          add_product(s[n], qf[2 * i], x.x, x.y, T());
          add_product(s[n], qf[2 * i + 1], x.z, x.w, T());
        }
      }
      weigh(s, acc, m, l, power, [&](int h, int n, int c) { return tile + part + 8 * n + 2 * t + c < last; });
      unsigned weights[4];
      #pragma unroll
      for (int i = 0; i < 4; i++) weights[i] = as_pair(s[i / 2][i % 2 * 2], s[i / 2][i % 2 * 2 + 1], T());
      #pragma unroll
      for (int h = 0; h < HALVES; h++) {
        uint4 values[4];
        #pragma unroll
        for (int i = 0; i < 4; i++) {
          const int key = part + i / 2 * 8 + 2 * t + i % 2;
          values[i] = *reinterpret_cast<const uint4*>(shared_v + key * V_ROW + 8 * g + 64 * h);
        }
        add_values<T>(acc + 8 * h, weights, values);
      }
    }
  }
  #pragma unroll
  for (int h = 0; h < 2; h++) {
    l[h] += __shfl_xor_sync(ALL, l[h], 1);
    l[h] += __shfl_xor_sync(ALL, l[h], 2);
    const int query = begin + g + 8 * h;
    if (query >= sharing) continue;
    const int64_t place = int64_t(head0 + query) * splits + split;
    if (t == 0) stats[place * 2] = m[h], stats[place * 2 + 1] = l[h];
    #pragma unroll
    for (int i = 0; i < 8 * HALVES; i++) {
      #pragma unroll
      for (int c = 0; c < 2; c++)
        sums[place * D + i / 8 * 64 + 16 * t + 8 * c + i % 8] = acc[i][2 * h + c];
    }
  }
}

// Block (row and head): the splits' sums, each with its maximum and its weight.
template <typename T, int D, bool SINKS, typename Shape>
void join_splits(const float* sums, const float* stats, const Shape& stats_shape, const float* sinks, T* out) {
  const int splits = stats_shape[2], d = threadIdx.x;
  const int64_t place = int64_t(blockIdx.x) * splits;
  float top = -1e30f, total = 0, weight = 0;
  for (int s = 0; s < splits; s++) top = max(top, stats[(place + s) * 2]);
  if constexpr (SINKS) {
    const float sink = sinks[blockIdx.x % int(stats_shape[1])] * 1.44269504f;
    top = max(top, sink);
    weight = exp2f(sink - top);
  }
  for (int s = 0; s < splits; s++) {
    const float factor = exp2f(stats[(place + s) * 2] - top);
    total += factor * sums[(place + s) * D + d];
    weight += factor * stats[(place + s) * 2 + 1];
  }
  out[int64_t(blockIdx.x) * D + d] = T(total / weight);
}

// Block (row and head): the same, with splits of tokens that rows share, whose queries were packed into blocks of `width`.
// A row has the place `order[row]` among those that share, of which there are `members`; others have larger ones.
template <typename T, int D, bool SINKS, typename Shape>
void join_shared(
    const float* sums, const float* stats, const Shape& stats_shape, const float* more, const float* more_stats,
    const Shape& more_shape, const int* order, int members, int heads, const float* sinks, T* out) {
  constexpr int MOST = 1024;  // splits of both kinds: one for each block that an H100 is given, at most
  const int splits = stats_shape[2], queries = stats_shape[1], tokens = queries / heads, d = threadIdx.x;
  const int row = blockIdx.x / queries, head = blockIdx.x % queries / tokens, token = blockIdx.x % tokens;
  const int member = order ? order[row] : row, width = int(more_shape[1]) / heads, flat = member * tokens + token;
  const int further = order && member >= members ? 0 : int(more_shape[2]);
  const int64_t place = int64_t(blockIdx.x) * splits;
  const int64_t other = ((int64_t(flat / width) * heads + head) * width + flat % width) * further;
  __shared__ float factors[MOST], weights[MOST], tops[MOST];
  const int all = splits + further;  // at most MOST
  for (int s = d; s < all; s += D) {
    const float* its = s < splits ? stats + (place + s) * 2 : more_stats + (other + s - splits) * 2;
    tops[s] = its[0], weights[s] = its[1];
  }
  __syncthreads();
  float top = -1e30f, total = 0, weight = 0;
  for (int s = 0; s < all; s++) top = max(top, tops[s]);
  if constexpr (SINKS) {
    const float sink = sinks[head] * 1.44269504f;
    top = max(top, sink);
    weight = exp2f(sink - top);
  }
  for (int s = d; s < all; s += D) factors[s] = exp2f(tops[s] - top);
  __syncthreads();
  #pragma unroll 4
  for (int s = 0; s < splits; s++) total += factors[s] * sums[(place + s) * D + d];
  #pragma unroll 8
  for (int s = 0; s < further; s++) total += factors[splits + s] * more[(other + s) * D + d];
  for (int s = 0; s < all; s++) weight += factors[s] * weights[s];
  out[int64_t(blockIdx.x) * D + d] = T(total / weight);
}

}  // namespace localai_shim
