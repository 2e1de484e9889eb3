#include "upload.cuh"

#include <algorithm>
#include <cstring>

#include "../mapping.h"
#include "../row_source.h"
#include "../vectors.h"

namespace assay::cuda {
namespace {

std::vector<float> read(const VectorPlan& vector, const Config& config) {
  switch (vector.kind) {
    case VectorKind::norm:
      return read_norm(*vector.tensor, config);
    case VectorKind::decay:
      return read_decay(*vector.tensor, config);
    case VectorKind::conv:
      return read_conv(*vector.tensor);
    case VectorKind::plain:
      break;
  }
  return read_vector(*vector.tensor);
}

}  // namespace

Upload::Upload(const DeviceWeights& weights, const Config& config, const Stream& stream, const Progress& progress)
    : config_(config),
      stream_(stream),
      progress_(progress),
      piece_bytes_(weights.piece_bytes()),
      staged_(piece_bytes_),
      pinned_(kBuffers * piece_bytes_) {
  for (cudaEvent_t& event : taken_) ASSAY_CUDA(cudaEventCreate(&event));
  progress_.begin(weights.file_bytes());
}

Upload::~Upload() {
  cudaStreamSynchronize(stream_.get());  // it may still read the buffers
  for (cudaEvent_t event : taken_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
}

int Upload::next() {
  turn_ = (turn_ + 1) % kBuffers;
  ASSAY_CUDA(cudaEventSynchronize(taken_[turn_]));
  return turn_;
}

void Upload::send(int buffer, uint8_t* to, size_t bytes) {
  stream_.upload(to, pinned_.data() + static_cast<size_t>(buffer) * piece_bytes_, bytes);
  ASSAY_CUDA(cudaEventRecord(taken_[buffer], stream_.get()));
}

void Upload::matrix(const MatrixPlan& matrix, uint8_t* packed) {
  stream_.zero(packed, matrix.bytes());
  int row = 0;
  for (const RowRun& run : matrix.runs) {
    const Tensor& tensor = *run.tensor;
    const int most = rows_in_piece(tensor);
    for (int done = 0; done < run.count; done += most) {
      const int count = std::min(most, run.count - done);
      const size_t bytes = row_bytes(tensor) * static_cast<size_t>(count);
      const uint8_t* source = read_rows(tensor, run.first + done, count, room_);
      const bool own = source != room_.data();  // the file's bytes as they lie there
      if (own) will_read(source + bytes, bytes);
      const int buffer = next();
      std::memcpy(pinned_.data() + static_cast<size_t>(buffer) * piece_bytes_, source, bytes);
      if (own) done_reading(source, bytes);
      send(buffer, staged_.data(), bytes);
      pack(matrix.type, staged_.data(), count, matrix.columns, row + done, packed, stream_.get());
      progress_.add(bytes);
    }
    row += run.count;
  }
}

void Upload::vector(const VectorPlan& vector, float* to) {
  const std::vector<float> values = read(vector, config_);
  const int buffer = next();
  std::memcpy(pinned_.data() + static_cast<size_t>(buffer) * piece_bytes_, values.data(), vector.bytes());
  send(buffer, reinterpret_cast<uint8_t*>(to), vector.bytes());
  progress_.add(vector.tensor->byte_size);
}

}  // namespace assay::cuda
