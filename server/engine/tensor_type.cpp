#include "tensor_type.h"

#include <string>

#include "error.h"

namespace assay {
namespace {

// ggml's types that are not read, so that a message can name them.
struct Unread {
  uint32_t number;
  const char* name;
};

constexpr Unread kUnread[] = {{9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},    {15, "Q8_K"},  {16, "IQ2_XXS"},
                              {17, "IQ2_XS"},  {18, "IQ3_XXS"}, {19, "IQ1_S"},  {20, "IQ4_NL"}, {21, "IQ3_S"},
                              {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},      {25, "I16"},   {26, "I32"},
                              {27, "I64"},     {28, "F64"},    {29, "IQ1_M"},   {34, "TQ1_0"}, {35, "TQ2_0"},
                              {39, "MXFP4"},   {40, "NVFP4 as GGUF stores it"}, {41, "Q1_0"}};

[[noreturn]] void refuse(uint32_t number) {
  std::string name;
  for (const Unread& unread : kUnread) {
    if (unread.number == number) name = std::string(" (") + unread.name + ")";
  }
  unsupported("tensor type " + std::to_string(number) + name +
              " is not supported (F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K and Q6_K are)");
}

}  // namespace

TypeTraits traits(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return {"F32", 1, 4};
    case TensorType::f16:
      return {"F16", 1, 2};
    case TensorType::q4_0:
      return {"Q4_0", 32, 18};
    case TensorType::q4_1:
      return {"Q4_1", 32, 20};
    case TensorType::q5_0:
      return {"Q5_0", 32, 22};
    case TensorType::q5_1:
      return {"Q5_1", 32, 24};
    case TensorType::q8_0:
      return {"Q8_0", 32, 34};
    case TensorType::q4_k:
      return {"Q4_K", 256, 144};
    case TensorType::q5_k:
      return {"Q5_K", 256, 176};
    case TensorType::q6_k:
      return {"Q6_K", 256, 210};
    case TensorType::bf16:
      return {"BF16", 1, 2};
    case TensorType::w4_f16:
      return {"W4A16 with F16 scales", 128, 66};
    case TensorType::w4_bf16:
      return {"W4A16 with BF16 scales", 128, 66};
    case TensorType::nvfp4:
      return {"NVFP4", 32, 18};
  }
  refuse(static_cast<uint32_t>(type));
}

TypeTraits file_traits(uint32_t number) {
  if (number >= static_cast<uint32_t>(TensorType::w4_f16)) refuse(number);
  return traits(static_cast<TensorType>(number));
}

}  // namespace assay
