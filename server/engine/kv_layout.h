// How keys and values of one head lie in a position block on a device:
//   keys    [128][padded]                     padded: head_dim rounded up to 32, zeros behind
//   values  [128 / 32][head_dim / 8][32][8]   lane 4 g + t of part n holds positions 2t, 2t + 1, 8 + 2t, ...,
//                                             24 + 2t, 25 + 2t of the 32 in dimension 8 n + g
//   int8    key scale float[128], value scale float[128]
// A lane of a half product (cuda/matrix.cuh) finds what it needs in one run of 16 bytes (8 for int8).
// At 4 bits (q4, head_dim a multiple of 32) a byte has two numbers of one position, which nobody else writes:
//   keys    [128][head_dim / 8][4]            of 8 dimensions 0 low, 2 high; 4, 6; 1, 3; 5, 7
//   values  [128 / 32][head_dim / 16][32][8]  as above, part 2 n low, part 2 n + 1 high; positions in the order
//                                             2t, 8 + 2t, 1 + 2t, 9 + 2t, and the same 16 on
//   half    key groups [head_dim / 32][128][2], value groups the same: scale and minimum (kv_q4.h)
// Plain C++ too, so that a cache can be planned where there is no device.
#pragma once

#include "ops.h"

namespace assay {

struct KvLayout {
  KvType type = KvType::f16;
  int head_dim = 0;

  ASSAY_ANYWHERE int padded() const { return (head_dim + 31) / 32 * 32; }
  // Of so many keys or values.
  ASSAY_ANYWHERE int bytes_of(int items) const {
    return type == KvType::f16 ? 2 * items : type == KvType::int8 ? items : items / 2;
  }
  ASSAY_ANYWHERE int value_offset() const { return bytes_of(kPositionBlock * padded()); }
  ASSAY_ANYWHERE int scale_offset() const { return value_offset() + bytes_of(kPositionBlock * head_dim); }
  // Of the scales of keys, or of values.
  ASSAY_ANYWHERE int scale_bytes() const {
    if (type == KvType::f16) return 0;
    return kPositionBlock * 4 * (type == KvType::int8 ? 1 : head_dim / kKvGroup);
  }
  ASSAY_ANYWHERE int head_bytes() const { return scale_offset() + 2 * scale_bytes(); }
  // Which item of the values position `position` of the block and dimension `d` is.
  ASSAY_ANYWHERE int value_index(int position, int d) const {
    const int within = position % 32;
    const int lane = d % 8 * 4 + within % 8 / 2;
    const int part = position / 32 * (head_dim / 8) + d / 8;
    return (part * 32 + lane) * 8 + within / 8 * 2 + within % 2;
  }
  // At 4 bits, neighbours lie 16 bits apart in a word, as halves do: which byte of keys, and of values, it is.
  ASSAY_ANYWHERE int key_byte(int position, int d) const {
    return (position * head_dim + d) / 8 * 4 + d % 2 * 2 + d % 8 / 4;
  }
  ASSAY_ANYWHERE int value_byte(int position, int d) const {
    const int within = position % 32;
    const int lane = d % 8 * 4 + within % 8 / 2;
    const int pair = position / 32 * (head_dim / 16) + d / 16;
    return (pair * 32 + lane) * 8 + within / 16 * 4 + within % 2 * 2 + within % 16 / 8;
  }
};

}  // namespace assay
