// embed: one row of the packed table, widened to float.
#include "cpu.h"
#include "simd.h"

namespace assay::cpu {
namespace {

// The 32-bit lanes of one row, 64 bytes apart (packed.h).
inline __m256i gather8(const uint8_t* lanes) {
  const __m256i offsets = _mm256_setr_epi32(0, 64, 128, 192, 256, 320, 384, 448);
  return _mm256_i32gather_epi32(reinterpret_cast<const int*>(lanes), offsets, 1);
}

inline __m128i gather4(const uint8_t* lanes) {
  return _mm_i32gather_epi32(reinterpret_cast<const int*>(lanes), _mm_setr_epi32(0, 64, 128, 192), 1);
}

inline float half_at(const uint8_t* halves, int row) {
  uint16_t bits;
  __builtin_memcpy(&bits, halves + 2 * row, sizeof bits);
  return _cvtsh_ss(bits);
}

inline float float_at(const uint8_t* floats, int row) {
  float value;
  __builtin_memcpy(&value, floats + 4 * row, sizeof value);
  return value;
}

inline float bfloat_at(const uint8_t* bfloats, int row) {
  uint16_t bits;
  __builtin_memcpy(&bits, bfloats + 2 * row, sizeof bits);
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits << 16)));
}

// 16 signed bytes times a scale plus an offset.
inline void widen16(__m128i bytes, float scale, float offset, float* out) {
  const __m256 s = _mm256_set1_ps(scale);
  const __m256 o = _mm256_set1_ps(offset);
  const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)));
  _mm256_storeu_ps(out, _mm256_add_ps(_mm256_mul_ps(low, s), o));
  _mm256_storeu_ps(out + 8, _mm256_add_ps(_mm256_mul_ps(high, s), o));
}

inline void widen_nibbles(const uint8_t* lanes, float scale, float offset, float* out) {
  const __m128i mask = _mm_set1_epi8(15);
  const __m128i pairs = gather4(lanes);
  widen16(_mm_and_si128(pairs, mask), scale, offset, out);
  widen16(_mm_and_si128(_mm_srli_epi16(pairs, 4), mask), scale, offset, out + 16);
}

// A row's fields of high bits, two quads of columns in 32 bits, stand 64 bytes apart (packed.h).
inline void widen_sixes(const uint8_t* block, int row, float low_scale, float high_scale, float offset, float* out) {
  const __m128i nibble = _mm_set1_epi8(15);
  const __m128i field = _mm_set1_epi8(48);
  const __m128i less = _mm_set1_epi8(32);
  const __m128i pairs = gather4(block + 128 + 4 * row);
  uint32_t fields[2];
  for (int u = 0; u < 2; ++u) __builtin_memcpy(fields + u, block + 384 + 64 * u + 4 * row, sizeof fields[u]);
  // Each quad's own two bits at 4 and 5.
  const __m128i low_bits = _mm_setr_epi32(fields[0] << 4, fields[0], fields[1] << 4, fields[1]);
  const __m128i high_bits = _mm_setr_epi32(fields[0] << 2, fields[0] >> 2, fields[1] << 2, fields[1] >> 2);
  const __m128i low = _mm_or_si128(_mm_and_si128(pairs, nibble), _mm_and_si128(low_bits, field));
  const __m128i high =
      _mm_or_si128(_mm_and_si128(_mm_srli_epi16(pairs, 4), nibble), _mm_and_si128(high_bits, field));
  widen16(_mm_sub_epi8(low, less), low_scale, offset, out);
  widen16(_mm_sub_epi8(high, less), high_scale, offset, out + 16);
}

void embed_block(Form form, const uint8_t* block, int row, float* out) {
  const int lane = row * 4;
  switch (form) {
    case Form::q8_0: {
      const __m256i bytes = gather8(block + 32 + lane);
      const float scale = half_at(block, row);
      widen16(_mm256_castsi256_si128(bytes), scale, 0.0f, out);
      widen16(_mm256_extracti128_si256(bytes, 1), scale, 0.0f, out + 16);
      return;
    }
    case Form::q4_1:
      widen_nibbles(block + 64 + lane, half_at(block, row), half_at(block + 32, row), out);
      return;
    case Form::q4_0: {
      const float scale = half_at(block, row);
      widen_nibbles(block + 32 + lane, scale, -8.0f * scale, out);
      return;
    }
    case Form::f16:
      for (int column = 0; column < kBlock; ++column) out[column] = half_at(block + 32 * column, row);
      return;
    case Form::f32:
      for (int column = 0; column < kBlock; ++column) __builtin_memcpy(out + column, block + 64 * column + 4 * row, 4);
      return;
    case Form::bf16:
      for (int column = 0; column < kBlock; ++column) out[column] = bfloat_at(block + 32 * column, row);
      return;
    case Form::nibbles:
      widen_nibbles(block + 128 + lane, float_at(block, row), float_at(block + 64, row), out);
      return;
    case Form::sixes:
      widen_sixes(block, row, float_at(block, row), float_at(block, row), float_at(block + 64, row), out);
      return;
    case Form::halved_sixes:
      widen_sixes(block, row, float_at(block, row), float_at(block + 64, row), 0.0f, out);
      return;
  }
}

}  // namespace

void embed(const Packed& table, int token, float* out) {
  const uint8_t* panel = table.base + static_cast<size_t>(token / kPanelRows) * table.panel_bytes;
  const size_t bytes = table.panel_bytes / static_cast<size_t>(table.columns / kBlock);
  const Form form = form_of(table.type);
  for (int block = 0; block < table.columns / kBlock; ++block) {
    embed_block(form, panel + static_cast<size_t>(block) * bytes, token % kPanelRows, out + block * kBlock);
  }
}

}  // namespace assay::cpu
