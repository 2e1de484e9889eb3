// kv_write: one position's key and value into a block, narrowed to its type.
#include "cpu.h"
#include "kv_block.h"

namespace assay::cpu {

void kv_write(const float* key, const float* value, int head_dim, KvType type, int position, uint8_t* block) {
  write_position<kKeyLane>(key, value, head_dim, type, position, block);
}

}  // namespace assay::cpu
