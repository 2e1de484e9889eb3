// attention and kv_write in AVX-512: tiles of twelve queries, sixteen interleaved positions.
//
// Folding partial results is the same work in either width: AVX2's serves.
#include "../attention_block.h"
#include "../kv_block.h"
#include "avx512.h"
#include "lanes16.h"

namespace assay::cpu::avx512 {

void kv_write(const float* key, const float* value, int head_dim, KvType type, int position, uint8_t* block) {
  write_position<kKeyLane>(key, value, head_dim, type, position, block);
}

void attention_decode(const Queries& queries, const uint8_t* block, const uint8_t* next, int first, float* partials,
                      size_t stride) {
  attend_partials<Lanes16>(queries, block, next, first, partials, stride);
}

void attention_prefill(const Queries& queries, const uint8_t* const* blocks, float* const* outputs) {
  attend_whole<Lanes16>(queries, blocks, outputs);
}

}  // namespace assay::cpu::avx512
