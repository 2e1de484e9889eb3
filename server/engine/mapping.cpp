#include "mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "error.h"

namespace assay {
namespace {

// Advises on the whole pages of some bytes, or on every page that they touch.
void advise(const uint8_t* data, size_t size, bool touched, int advice) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (touched ? address : address + page - 1) / page * page;
  const uintptr_t last = touched ? address + size : (address + size) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, advice);
}

constexpr size_t kHugePage = size_t{2} << 20;

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

std::string reason() { return std::strerror(errno); }

}  // namespace

Mapping::Mapping(const std::string& path) {
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) bad_file("cannot open " + path + ": " + reason());
  struct stat status;
  if (fstat(file.fd, &status) != 0) bad_file("cannot read the size of " + path + ": " + reason());
  if (!S_ISREG(status.st_mode)) bad_file(path + " is not a regular file");
  if (status.st_size == 0) bad_file(path + " is empty");
  size_ = static_cast<size_t>(status.st_size);
  void* address = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (address == MAP_FAILED) bad_file("cannot map " + path + ": " + reason());
  data_ = static_cast<const uint8_t*>(address);
}

Mapping::~Mapping() { munmap(const_cast<uint8_t*>(data_), size_); }

void will_read(const uint8_t* data, size_t size) { advise(data, size, true, MADV_WILLNEED); }

void done_reading(const uint8_t* data, size_t size) { advise(data, size, false, MADV_DONTNEED); }

Pages::Pages(size_t size) : size_(size) {
  if (size > SIZE_MAX - 2 * kHugePage) throw Error(ASSAY_NO_MEMORY, "more memory asked for than can be addressed");
  reserved_ = size + kHugePage;
  void* address = mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw Error(ASSAY_NO_MEMORY, "cannot reserve " + std::to_string(size >> 20) + " MiB: " + reason());
  }
  base_ = address;
  const uintptr_t aligned = (reinterpret_cast<uintptr_t>(address) + kHugePage - 1) & ~uintptr_t{kHugePage - 1};
  data_ = reinterpret_cast<uint8_t*>(aligned);
#ifdef MADV_HUGEPAGE
  madvise(data_, size_, MADV_HUGEPAGE);
#endif
}

Pages::~Pages() {
  if (base_ != nullptr) munmap(base_, reserved_);
}

Pages::Pages(Pages&& other) noexcept { *this = std::move(other); }

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(reserved_, other.reserved_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace assay
