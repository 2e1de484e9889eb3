#include "model_file.h"

#include <algorithm>

#include "error.h"

namespace assay {

ModelFile::ModelFile(const std::string& path) {
  files_.push_back(std::make_unique<Mapping>(path));
  read_gguf(files_.back()->data(), files_.back()->size(), *this, tensors_);
  index_tensors();
  check_layout();
}

void ModelFile::index_tensors() {
  for (size_t index = 0; index < tensors_.size(); ++index) {
    if (!names_.emplace(tensors_[index].name, index).second) {
      bad_file("tensor " + quoted(tensors_[index].name) + " stands twice");
    }
  }
}

void ModelFile::check_layout() const {
  std::vector<const Tensor*> order;
  for (const Tensor& tensor : tensors_) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const Tensor* a, const Tensor* b) { return a->data < b->data; });
  for (size_t index = 1; index < order.size(); ++index) {
    if (order[index - 1]->data + order[index - 1]->byte_size > order[index]->data) {
      bad_file("tensors " + quoted(order[index - 1]->name) + " and " + quoted(order[index]->name) + " overlap");
    }
  }
}

const Tensor* ModelFile::find_tensor(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace assay
