#include "row_source.h"

namespace assay {

const uint8_t* read_rows(const Tensor& tensor, int first, int, std::vector<uint8_t>&) {
  return tensor.data + static_cast<size_t>(first) * row_bytes(tensor);
}

}  // namespace assay
