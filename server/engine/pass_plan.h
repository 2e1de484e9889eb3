// What a pass computes, and how its attention is cut into units.
#pragma once

#include <algorithm>
#include <vector>

#include "config.h"
#include "ops.h"

namespace assay {

struct Segment {
  int slot;
  int position;  // of its first row
  int first;     // row in the pass
  int count;
};

struct Pass {
  std::vector<int32_t> tokens;    // one a row
  std::vector<Segment> segments;  // cover the rows in order
  std::vector<int> wanted;        // rows whose logits are asked for
  float* logits;                  // [wanted][vocabulary]
  int32_t* greedy;                // [wanted]
};

// Part of a pass's attention that one thread computes alone.
struct AttentionUnit {
  int segment;
  int row;   // first row, in the pass
  int rows;  // consecutive rows
  int kv_head;
  int head;   // first query head
  int heads;  // consecutive query heads of the key/value head
  int block;  // the position block, or -1: all of them (prefill form)
};

struct PassPlan {
  PassPlan(const Config& config, const Pass& pass, int most_queries)
      : rows(static_cast<int>(pass.tokens.size())),
        row_position(pass.tokens.size()),
        row_segment(pass.tokens.size()),
        decode_row(pass.tokens.size(), -1) {
    const int group = config.heads / config.kv_heads;
    const int tile_heads = std::min(group, most_queries);
    const int tile_rows = std::max(1, most_queries / tile_heads);
    for (size_t index = 0; index < pass.segments.size(); ++index) {
      const Segment& segment = pass.segments[index];
      for (int row = 0; row < segment.count; ++row) {
        row_segment[static_cast<size_t>(segment.first + row)] = static_cast<int>(index);
        row_position[static_cast<size_t>(segment.first + row)] = segment.position + row;
      }
      const bool decode = segment.count == 1;
      if (decode) decode_row[static_cast<size_t>(segment.first)] = decode_rows++;
      const int blocks = decode ? segment.position / kPositionBlock + 1 : 1;
      partials += decode ? blocks * config.heads : 0;
      for (int row = 0; row < segment.count; row += tile_rows) {
        for (int kv_head = 0; kv_head < config.kv_heads; ++kv_head) {
          for (int head = 0; head < group; head += tile_heads) {
            for (int block = 0; block < blocks; ++block) {
              units.push_back({static_cast<int>(index), segment.first + row, std::min(tile_rows, segment.count - row),
                               kv_head, kv_head * group + head, std::min(tile_heads, group - head),
                               decode ? block : -1});
            }
          }
        }
      }
    }
    // The last rows see the most positions; begun first, they end no later than the rest.
    std::reverse(units.begin(), units.end());
  }

  int position(int row) const { return row_position[static_cast<size_t>(row)]; }
  int segment(int row) const { return row_segment[static_cast<size_t>(row)]; }

  int rows;
  int decode_rows = 0;
  int partials = 0;  // partial results of decoding rows, to be folded
  std::vector<int> row_position;
  std::vector<int> row_segment;
  std::vector<int> decode_row;  // index among the rows that attend block by block, or -1
  std::vector<AttentionUnit> units;
};

}  // namespace assay
