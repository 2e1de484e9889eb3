#include "model_file.h"

#include <algorithm>

#include "description.h"
#include "error.h"
#include "row_source.h"

namespace assay {

ModelFile::ModelFile(const assay_options& options)
    : raw_(options.tensors != nullptr), head_(choose_head(options.head)) {
  if (raw_) {
    read_description(options);
  } else {
    if (options.path == nullptr) bad_argument("no path");
    const Mapping& file = mapped(options.path);
    read_gguf(file.data(), file.size(), *this, tensors_);
  }
  index_tensors();
  check_layout();
  const auto head = names_.find(kHeadTensor);
  load_head_as(head_, head == names_.end() ? nullptr : &tensors_[head->second]);
}

void ModelFile::index_tensors() {
  for (size_t index = 0; index < tensors_.size(); ++index) {
    if (!names_.emplace(tensors_[index].name, index).second) {
      bad_file("tensor " + quoted(tensors_[index].name) + " stands twice");
    }
  }
}

void ModelFile::read_description(const assay_options& options) {
  if (options.metadata == nullptr) bad_argument("tensors without metadata");
  for (size_t index = 0; index < options.metadata_count; ++index) add(described_metadata(options.metadata[index]));
  const auto place = [&](const char* path) { return &mapped(path); };
  for (size_t index = 0; index < options.tensor_count; ++index) {
    tensors_.push_back(described_tensor(options.tensors[index], place));
  }
}

const Mapping& ModelFile::mapped(const std::string& path) {
  std::unique_ptr<Mapping>& file = files_[path];
  if (file == nullptr) file = std::make_unique<Mapping>(path);
  return *file;
}

void ModelFile::check_layout() const {
  struct Range {
    const uint8_t* start;
    size_t size;
    const Tensor* tensor;
  };
  std::vector<Range> order;
  for (const Tensor& tensor : tensors_) {
    order.push_back({tensor.data, stored_bytes(tensor), &tensor});
    if (tensor.scales != nullptr) order.push_back({tensor.scales, scale_bytes(tensor), &tensor});
  }
  std::sort(order.begin(), order.end(), [](const Range& a, const Range& b) { return a.start < b.start; });
  for (size_t index = 1; index < order.size(); ++index) {
    const Range& before = order[index - 1];
    if (before.start + before.size > order[index].start) {
      bad_file("tensors " + quoted(before.tensor->name) + " and " + quoted(order[index].tensor->name) + " overlap");
    }
  }
}

const Tensor* ModelFile::find_tensor(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace assay
