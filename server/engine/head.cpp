#include "head.h"

#include <string>

#include "error.h"
#include "q8_block.h"
#include "row_source.h"
#include "tiles.h"

namespace assay {

HeadForm choose_head(const char* asked) {
  const std::string name = asked == nullptr ? head_name(HeadForm::stored) : asked;
  for (const HeadForm form : {HeadForm::stored, HeadForm::q8_0}) {
    if (name == head_name(form)) return form;
  }
  bad_argument("an output head as '" + name + "', not 'stored' or 'q8_0'");
}

const char* head_name(HeadForm form) { return form == HeadForm::stored ? "stored" : "q8_0"; }

void load_head_as(HeadForm form, Tensor* head) {
  if (form == HeadForm::stored) return;
  const std::string asked = std::string("an output head as '") + head_name(form) + "': ";
  if (head == nullptr) {
    bad_argument(asked + "this model has no head of its own (" + quoted(kHeadTensor) +
                 "), its embedding table is its head too");
  }
  if (!is_float(head->type)) {
    bad_argument(asked + "this model's is " + traits(head->type).name +
                 ", quantised already; only one of F32, F16 or BF16 can be made that");
  }
  if (head->columns % kQ8Values != 0) {
    bad_argument(asked + "rows of " + std::to_string(head->columns) + " values are no multiple of its block of " +
                 std::to_string(kQ8Values));
  }
  head->storage = Storage::floats;
  head->stored = head->type;
  head->type = TensorType::q8_0;
  head->byte_size = row_bytes(*head) * static_cast<size_t>(head->rows);
}

}  // namespace assay
