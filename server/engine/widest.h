// Which blocks of a row are refined: those of largest scale, the lowest index first among equals; listed ascending.
#pragma once

#include <cstdint>

namespace assay {
namespace {

inline void find_widest(const float* scale, int blocks, int count, int32_t* widest) {
  if (count == blocks) {
    for (int block = 0; block < blocks; ++block) widest[block] = block;
    return;
  }
  int found = 0;
  for (int block = 0; block < blocks; ++block) {
    // An insertion into the few found so far, ordered by scale.
    int at = found;
    while (at > 0 && scale[block] > scale[widest[at - 1]]) --at;
    if (at >= count) continue;
    if (found < count) ++found;
    for (int later = found - 1; later > at; --later) widest[later] = widest[later - 1];
    widest[at] = block;
  }
  for (int i = 1; i < count; ++i) {
    const int32_t block = widest[i];
    int at = i;
    for (; at > 0 && widest[at - 1] > block; --at) widest[at] = widest[at - 1];
    widest[at] = block;
  }
}

}  // namespace
}  // namespace assay
