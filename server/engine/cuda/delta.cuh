// The operations of gated delta layers: what each takes and does. One file each has the kernels.
//
// A layer maps keys to values by a matrix S[key_dim][value_dim] of each value head, which
// decays and is written to at every position. With G_i the sum of the log decays g since
// the running chunk's start (S is that of the start), k and q of length 1 (q over
// sqrt(key_dim) too) and beta_i how much of a write is taken:
//   u_i = beta_i (v_i - (e^{G_i} S^T k_i + sum_{j<i} e^{G_i - G_j} (k_j . k_i) u_j))
//   o_i = e^{G_i} S^T q_i + sum_{j<=i} e^{G_i - G_j} (k_j . q_i) u_j
// and when the position after a chunk of kDeltaChunk is first written:
//   S <- e^{G_63} S + sum_j e^{G_63 - G_j} k_j u_j^T
//
// All arrays are in device memory. A pass is cut into segments, consecutive rows of one
// slot; everything a kernel must know of them lies on the device, so that a graph of a
// number of rows serves every pass of it. The arithmetic of a row is fixed by its
// position and the shape alone: how the rows were cut changes no bit.
#pragma once

#include "../delta_slot.h"
#include "../workspace.h"
#include "kernels.cuh"

namespace assay::cuda {

struct DeltaPass {
  const int32_t* segment_of = nullptr;       // [row]
  const DeltaSegment* segments = nullptr;    // [count]
  const int32_t* segment_count = nullptr;
  int rows = 0;
  int most_segments = 0;  // that are launched; those past the count end at once
};

// One layer of every slot.
struct DeltaView {
  DeltaView(const DeltaShape& its, bool in_groups, float* layer, int64_t a_slot)
      : shape(its), grouped(in_groups), channels(its.width()), at(its), slots(layer), slot_floats(a_slot) {}

  __device__ float* slot(int index) const { return slots + index * slot_floats; }

  DeltaShape shape;
  bool grouped;  // value head h has key head h / (value_heads / key_heads), else h % key_heads
  int channels;
  DeltaSlot at;
  float* slots;  // of slot 0; the next is slot_floats away
  int64_t slot_floats;
};

// out[row][channels] = the causal convolution over the rows before and the row x + row * stride, then SiLU:
// each channel one chain of fused steps, ascending in time, from zero. weight[conv][channels].
void conv1d(const float* x, int stride, const float* weight, const DeltaView& view, const DeltaPass& pass, float* out,
            cudaStream_t stream);

// Makes each query and key head of x[row][channels] one of length 1 (queries: over sqrt(key_dim)), in place, and
// gates[row][value_head] = (decay softplus(a + dt), sigmoid(b)); a and b are `stride` apart for each row.
void delta_inputs(float* x, const float* a, const float* b, int stride, const float* decay, const float* dt,
                  const DeltaView& view, int rows, float2* gates, cudaStream_t stream);

// out[row][value_head][value_dim] = o of the recurrence; writes S, u and G of the slots.
void delta(const float* x, const float2* gates, const DeltaView& view, const DeltaPass& pass, float* out,
           cudaStream_t stream);

// Keeps what later passes need of this one: keys of x[row][channels] that the running chunk has, and the
// last rows that the convolution was given. After `delta`, which still reads what is overwritten.
void delta_keep(const float* given, int stride, const float* x, const DeltaView& view, const DeltaPass& pass,
                cudaStream_t stream);

}  // namespace assay::cuda
