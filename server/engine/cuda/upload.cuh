// Weights on their way from the mapped file to the device: in pieces, packed there as they come.
//
// The processor copies a piece into one of two pinned buffers while the device takes the other, so the file is
// read once, ahead of the device, and its pages are given back as they are done with: a file of any size needs
// no more host memory than the two buffers and what the kernel reads ahead.
#pragma once

#include "../device_weights.h"
#include "../progress.h"
#include "kernels.cuh"

namespace assay::cuda {

class Upload {
 public:
  Upload(const DeviceWeights& weights, const Config& config, const Stream& stream, const Progress& progress);
  ~Upload();
  Upload(const Upload&) = delete;
  Upload& operator=(const Upload&) = delete;

  // The tensors' rows, packed one below the other; `packed` is matrix.bytes() long.
  void matrix(const MatrixPlan& matrix, uint8_t* packed);

  void vector(const VectorPlan& vector, float* to);

  void wait() const { stream_.wait(); }  // until all of it is there

 private:
  // One of the pinned buffers, free to be written to.
  int next();
  // `bytes` of it, to the device.
  void send(int buffer, uint8_t* to, size_t bytes);

  static constexpr int kBuffers = 2;

  const Config& config_;
  const Stream& stream_;
  Progress progress_;
  size_t piece_bytes_;
  DeviceArray<uint8_t> staged_;
  PinnedArray<uint8_t> pinned_;
  std::vector<uint8_t> room_;  // of rows that are translated
  cudaEvent_t taken_[kBuffers] = {};  // the device has read the buffer
  int turn_ = 0;
};

}  // namespace assay::cuda
