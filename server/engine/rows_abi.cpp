// assay_ops.h: the rows of one described tensor, as a loader reads them.
#include <cstring>
#include <memory>
#include <vector>

#include "assay_ops.h"
#include "border.h"
#include "description.h"
#include "head.h"
#include "row_source.h"

int32_t assay_op_rows(const assay_tensor_source* source, const char* head, int32_t first, int32_t count, uint8_t* out,
                      uint64_t size, char* error, size_t error_size) {
  using namespace assay;
  return guarded(error, error_size, [&] {
    std::vector<std::unique_ptr<Mapping>> files;
    Tensor tensor = described_tensor(*source, [&](const char* path) {
      files.push_back(std::make_unique<Mapping>(path));
      return files.back().get();
    });
    load_head_as(choose_head(head), &tensor);
    if (first < 0 || count < 1 || static_cast<uint64_t>(first) + static_cast<uint64_t>(count) > tensor.rows) {
      bad_argument("rows that there are not");
    }
    if (size != row_bytes(tensor) * static_cast<size_t>(count)) bad_argument("room of another size");
    std::vector<uint8_t> room;
    std::memcpy(out, read_rows(tensor, first, count, room), static_cast<size_t>(size));
  });
}
