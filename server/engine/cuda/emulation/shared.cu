#include "shared.cuh"

#include <deque>
#include <vector>

namespace emulation {
namespace {

constexpr int kNobody = -1;
constexpr int kSeveral = -2;

struct Word {
  uint64_t begun = 0;  // the block that wrote it
  uint64_t write_epoch = 0, write_warp_epoch = 0;
  uint64_t read_epoch = 0, read_warp_epoch = 0;
  int writer = kNobody;
  int reader = kNobody;  // one thread, or several
  int reader_warp = kNobody;
};

struct Copy {
  size_t offset;
  const void* source;
};

struct Copies {
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
};

struct Memory {
  std::vector<uint8_t> bytes;
  std::vector<Word> words;
  std::vector<Copies> copies;
  size_t dynamic_size = 0;
  uint64_t block = 0;
};

Memory memory;

bool apart(int other, int other_warp, uint64_t then, uint64_t then_warp) {
  const int me = thread();
  if (other == me || other == kNobody || then != epoch()) return true;
  return other_warp == me / kLanes && then_warp != warp_epoch();
}

std::string word_name(size_t offset) {
  const bool dynamic = offset >= kStaticBytes;
  return std::string(dynamic ? "dynamic" : "static") + " shared memory at byte " +
         std::to_string(dynamic ? offset - kStaticBytes : offset);
}

void check_writer(const Word& word, size_t offset, const char* what) {
  if (word.begun != memory.block || apart(word.writer, word.writer / kLanes, word.write_epoch, word.write_warp_epoch)) {
    return;
  }
  fault(word_name(offset) + " is " + what + " without a barrier after thread " + std::to_string(word.writer) +
        " wrote it");
}

}  // namespace

void shared_plan(size_t dynamic_bytes) {
  memory.dynamic_size = dynamic_bytes;
  memory.bytes.resize(kStaticBytes + dynamic_bytes);
  memory.words.resize(memory.bytes.size() / 4 + 1);
}

void shared_begin() {
  ++memory.block;
  std::memset(memory.bytes.data(), 0xcd, memory.bytes.size());
  for (Copies& each : memory.copies) each = Copies();
}

size_t dynamic_bytes() { return memory.dynamic_size; }
uint8_t* shared_memory() { return memory.bytes.data(); }

void shared_read(size_t offset, size_t size) {
  if (offset % size != 0) fault("a misaligned read of " + word_name(offset));
  for (size_t at = offset; at < offset + size; at += 4) {
    Word& word = memory.words[at / 4];
    if (word.begun != memory.block) fault(word_name(at) + " is read before it is written");
    check_writer(word, at, "read");
    const int me = thread();
    const bool earlier = word.read_epoch == epoch() && word.reader != kNobody;
    if (!earlier) {
      word.reader = me;
      word.reader_warp = me / kLanes;
    } else if (word.reader != me) {
      word.reader = kSeveral;
      if (word.reader_warp != me / kLanes) word.reader_warp = kSeveral;
    }
    word.read_epoch = epoch();
    word.read_warp_epoch = warp_epoch();
  }
}

void shared_write(size_t offset, size_t size) {
  if (offset % size != 0) fault("a misaligned write of " + word_name(offset));
  for (size_t at = offset; at < offset + size; at += 4) {
    Word& word = memory.words[at / 4];
    check_writer(word, at, "written");
    if (word.begun == memory.block && !apart(word.reader, word.reader_warp, word.read_epoch, word.read_warp_epoch)) {
      fault(word_name(at) + " is written without a barrier after another thread read it");
    }
    word.begun = memory.block;
    word.writer = thread();
    word.write_epoch = epoch();
    word.write_warp_epoch = warp_epoch();
    word.reader = kNobody;
  }
}

void copy_begin(size_t offset, const void* source) {
  if (offset % 16 != 0 || reinterpret_cast<uintptr_t>(source) % 16 != 0) fault("a misaligned asynchronous copy");
  shared_write(offset, 16);
  for (size_t at = offset; at < offset + 16; at += 4) memory.words[at / 4].begun = 0;  // not there before the wait
  const size_t me = static_cast<size_t>(thread());
  if (memory.copies.size() <= me) memory.copies.resize(me + 1);
  memory.copies[me].open.push_back({offset, source});
}

void copy_commit() {
  const size_t me = static_cast<size_t>(thread());
  if (memory.copies.size() <= me) memory.copies.resize(me + 1);
  memory.copies[me].groups.push_back(std::move(memory.copies[me].open));
  memory.copies[me].open.clear();
}

void copy_wait(int groups_left) {
  const size_t me = static_cast<size_t>(thread());
  if (memory.copies.size() <= me) return;
  std::deque<std::vector<Copy>>& groups = memory.copies[me].groups;
  while (groups.size() > static_cast<size_t>(groups_left)) {
    for (const Copy& copy : groups.front()) {
      std::memcpy(memory.bytes.data() + copy.offset, copy.source, 16);
      shared_write(copy.offset, 16);
    }
    groups.pop_front();
  }
}

}  // namespace emulation
