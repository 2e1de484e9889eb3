// Opens model files that are hostile on purpose, in a process that may die of them.
//
// Linked against a library that a sanitizer watches; reads one frame after the
// other from standard input and answers each with a line on standard output:
//   in:  u64 bytes of the file (little endian), i32 threads, i32 slots, i32 whether
//        keys and values are int8, the bytes
//   out: status, MiB of address space that the open engine took, message
// Each file is looked at (assay_inspect) and then opened, and both must say the same.
// A file that opens has every metadata byte read and runs steps: a prompt, longer
// and in two slots at once where there are two, then tokens one by one, the second
// slot going on from a part of the first. The answer is never looked at here; a
// file with an altered weight still opens. A file that takes longer than
// kMostSeconds ends the process by SIGALRM.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "assay_engine.h"

namespace {

constexpr unsigned kMostSeconds = 60;
constexpr int kShortPrompt = 3;
constexpr int kLongPrompt = 70;  // more than a chunk of the gated delta rule
constexpr int kSteps = 2;

struct Answer {
  int status;
  std::string message;
  long taken_mib;
};

bool read_all(void* out, size_t count) { return std::fread(out, 1, count, stdin) == count; }

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(3);
}

long address_space_mib() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  long pages = 0;
  if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1) die("statm");
  std::fclose(file);
  return pages / 256;
}

// Adds every byte of an entry to a sum.
void touch(void* sum, const assay_metadata* entry) {
  uint64_t& total = *static_cast<uint64_t*>(sum);
  for (uint64_t at = 0; at < entry->key_size; ++at) total += static_cast<uint8_t>(entry->key[at]);
  for (uint64_t at = 0; at < entry->byte_size; ++at) total += entry->bytes[at];
}

uint64_t touch_metadata(const assay_engine* engine) {
  uint64_t sum = 0;
  for (uint64_t index = 0; index < assay_metadata_count(engine); ++index) {
    assay_metadata entry{};
    if (assay_metadata_entry(engine, index, &entry) != ASSAY_OK) die("metadata");
    touch(&sum, &entry);
  }
  return sum;
}

int run_steps(assay_engine* engine, char* error, size_t error_size) {
  assay_info info{};
  assay_describe(engine, &info);
  const size_t vocabulary = static_cast<size_t>(info.vocabulary);
  const int slots = std::min(info.slots, 2);
  const int prompt = std::min(slots == 2 ? kLongPrompt : kShortPrompt, std::max(info.context - kSteps, 1));
  std::vector<int32_t> tokens(static_cast<size_t>(prompt));
  for (int index = 0; index < prompt; ++index) tokens[static_cast<size_t>(index)] = index % info.vocabulary;
  std::vector<float> logits(vocabulary * static_cast<size_t>(2 * prompt));
  std::vector<int32_t> greedy(static_cast<size_t>(2 * prompt));
  const assay_chunk prefill[2] = {{tokens.data(), prompt, 0, 0, ASSAY_LOGITS_ALL},
                                  {tokens.data(), prompt, 1, 0, ASSAY_LOGITS_LAST}};
  size_t rows = static_cast<size_t>(prompt) + (slots == 2 ? 1 : 0);
  int status = assay_step(engine, prefill, static_cast<size_t>(slots), logits.data(), greedy.data(), rows, error,
                          error_size);
  int lengths[2] = {prompt, prompt};
  if (status == ASSAY_OK && slots == 2) {
    lengths[1] = std::max(prompt / 2, assay_rewindable(engine, 0));
    status = assay_fork(engine, 0, 1, lengths[1], error, error_size);
    if (status == ASSAY_OK && assay_length(engine, 1) != lengths[1]) die("a fork's length");
  }
  for (int step = 0; status == ASSAY_OK && step < kSteps && prompt + step < info.context; ++step) {
    const int32_t next[2] = {greedy[0], greedy[static_cast<size_t>(slots - 1)]};
    const assay_chunk decode[2] = {{&next[0], 1, 0, lengths[0] + step, ASSAY_LOGITS_LAST},
                                   {&next[1], 1, 1, lengths[1] + step, ASSAY_LOGITS_LAST}};
    rows = static_cast<size_t>(slots);
    status = assay_step(engine, decode, rows, logits.data(), greedy.data(), rows, error, error_size);
  }
  return status;
}

Answer open_model(const std::vector<uint8_t>& bytes, int threads, int slots, bool int8) {
  const int file = memfd_create("model", MFD_CLOEXEC);
  if (file < 0) die("memfd_create");
  if (!bytes.empty() && write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) die("write");
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  char error[512] = "";
  assay_options options{};
  options.path = path.c_str();
  options.isa = std::getenv("OPEN_MODELS_ISA");
  options.kv = int8 ? "int8" : "f16";
  options.threads = threads;
  options.slots = slots;
  assay_inspection found{};
  uint64_t inspected = 0;
  char refusal[512] = "";
  const int looked = assay_inspect(&options, &found, touch, &inspected, refusal, sizeof refusal);
  const long before = address_space_mib();
  assay_engine* engine = nullptr;
  int status = assay_open(&options, &engine, error, sizeof error);
  const long taken = address_space_mib() - before;
  close(file);
  const bool same = status == looked && std::strcmp(error, refusal) == 0;
  if (!same && status != ASSAY_NO_MEMORY) die("the header said otherwise");
  if (status == ASSAY_OK) {
    assay_info info{};
    assay_describe(engine, &info);
    if (touch_metadata(engine) != inspected) die("the header had other metadata");
    if (info.vocabulary != found.vocabulary || info.context != found.context) die("the header had another shape");
    status = run_steps(engine, error, sizeof error);
    assay_close(engine);
  }
  return {status, error, taken};
}

}  // namespace

int main() {
  uint64_t size = 0;
  while (read_all(&size, sizeof size)) {
    int32_t head[3] = {};
    if (!read_all(head, sizeof head)) die("a frame's head");
    std::vector<uint8_t> bytes(size);
    if (size != 0 && !read_all(bytes.data(), size)) die("a frame");
    alarm(kMostSeconds);
    Answer answer = open_model(bytes, head[0], head[1], head[2] != 0);
    alarm(0);
    std::replace_if(
        answer.message.begin(), answer.message.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
    std::printf("%d %ld %s\n", answer.status, answer.taken_mib, answer.message.c_str());
    std::fflush(stdout);
  }
  return 0;
}
