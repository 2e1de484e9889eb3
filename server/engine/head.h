// In which form a model's output head is loaded: as it is stored, or a head of floats as Q8_0.
//
// Every decode step reads the whole head, and a model of 4 bits is often published with a head of 16: as Q8_0 it is
// half of that. The tensor then has the type Q8_0 with the storage `floats` (gguf.h), and row_source.h quantises its
// rows as they are read: whoever plans, packs or counts sees a file that has a Q8_0 head.
#pragma once

#include "gguf.h"

namespace assay {

enum class HeadForm { stored, q8_0 };

constexpr const char* kHeadTensor = "output.weight";

// NULL: stored. Error (bad argument) naming what is asked for when it is no form.
HeadForm choose_head(const char* asked);
const char* head_name(HeadForm form);

// Makes `head` be read in a form. Error (bad argument) saying why it cannot be: there is none (nullptr: the model
// multiplies with its embedding table), it is quantised already, or its rows are no whole blocks.
void load_head_as(HeadForm form, Tensor* head);

}  // namespace assay
