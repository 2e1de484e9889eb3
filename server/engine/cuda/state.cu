#include "state.cuh"

namespace assay::cuda {

State::State(const StateSizes& sizes, const Config& config, int slots, const Stream& stream)
    : sizes_(sizes),
      shape_(config.delta),
      grouped_(config.raw),
      spans_(static_cast<size_t>(slots)),
      stream_(stream),
      memory_(sizes.floats) {}

int State::write(int slot, int position, int count) {
  Span& span = spans_[static_cast<size_t>(slot)];
  span.keep(position);
  const int base = span.base;
  span.write(count, shape_.conv);
  return base;
}

void State::fork(int source, int slot, int positions) {
  if (!any()) return;
  Span& span = spans_[static_cast<size_t>(slot)];
  if (source != slot && positions != 0) {
    ASSAY_CUDA(cudaMemcpyAsync(memory_.data() + slot * sizes_.slot_floats, memory_.data() + source * sizes_.slot_floats,
                               sizes_.slot_bytes(), cudaMemcpyDeviceToDevice, stream_.get()));
  }
  span = spans_[static_cast<size_t>(source)];
  span.keep(positions);
}

DeltaView State::view(int index) const {
  return {shape_, grouped_, memory_.data() + index * sizes_.layer_floats, sizes_.slot_floats};
}

}  // namespace assay::cuda
