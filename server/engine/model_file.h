// A model before it is loaded: its metadata and where its tensors lie.
//
// The files stay mapped as long as this object lives; tensors and metadata are
// views into them. Nothing of the tensors is read here: rows come from
// row_source.h, a piece at a time, so that a file larger than memory can be
// loaded.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "assay_engine.h"
#include "gguf.h"
#include "head.h"
#include "mapping.h"
#include "metadata.h"

namespace assay {

class ModelFile : public MetadataTable {
 public:
  // The GGUF file at the options' path, or what their tensors and metadata describe.
  // Error: it is not to be read, contradicts itself, is of a kind not served, or has no such head as is asked for.
  explicit ModelFile(const assay_options& options);

  // Whether the tensors hold what the model's author stored, not what GGUF's converters make of it.
  bool raw() const { return raw_; }

  // In which form its output head is read.
  HeadForm head() const { return head_; }

  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find_tensor(const std::string& name) const;  // nullptr when absent

 private:
  void read_description(const assay_options& options);
  const Mapping& mapped(const std::string& path);
  void index_tensors();
  void check_layout() const;

  bool raw_ = false;
  HeadForm head_;
  std::map<std::string, std::unique_ptr<Mapping>> files_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string, size_t> names_;
};

}  // namespace assay
