// Which blocks of a row are refined: those of largest scale, the lowest index first among equals.
#pragma once

#include <cstdint>

namespace assay {
namespace {

inline void find_widest(const float* scale, int blocks, int count, int32_t* widest) {
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
}

}  // namespace
}  // namespace assay
