// How keys and values of one head lie in a position block on a device:
//   keys    [128][padded]                     padded: head_dim rounded up to 32, zeros behind
//   values  [128 / 32][head_dim / 8][32][8]   lane 4 g + t of part n holds positions 2t, 2t + 1, 8 + 2t, ...,
//                                             24 + 2t, 25 + 2t of the 32 in dimension 8 n + g
//   int8    key scale float[128], value scale float[128]
// A lane of a half product (cuda/matrix.cuh) finds what it needs in one run of 16 bytes (8 for int8).
// Plain C++ too, so that a cache can be planned where there is no device.
#pragma once

#include "ops.h"

#ifdef __CUDACC__
#define ASSAY_ANYWHERE __host__ __device__
#else
#define ASSAY_ANYWHERE
#endif

namespace assay {

struct KvLayout {
  KvType type = KvType::f16;
  int head_dim = 0;

  ASSAY_ANYWHERE int item_bytes() const { return type == KvType::f16 ? 2 : 1; }
  ASSAY_ANYWHERE int padded() const { return (head_dim + 31) / 32 * 32; }
  ASSAY_ANYWHERE int value_offset() const { return kPositionBlock * padded() * item_bytes(); }
  ASSAY_ANYWHERE int scale_offset() const { return value_offset() + kPositionBlock * head_dim * item_bytes(); }
  ASSAY_ANYWHERE int head_bytes() const {
    return scale_offset() + (type == KvType::f16 ? 0 : 2 * kPositionBlock * static_cast<int>(sizeof(float)));
  }
  // Which item of the values position `position` of the block and dimension `d` is.
  ASSAY_ANYWHERE int value_index(int position, int d) const {
    const int within = position % 32;
    const int lane = d % 8 * 4 + within % 8 / 2;
    const int part = position / 32 * (head_dim / 8) + d / 8;
    return (part * 32 + lane) * 8 + within / 8 * 2 + within % 2;
  }
};

}  // namespace assay
