#include "memory.cuh"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>

namespace emulation {
namespace {

struct Allocation {
  uint8_t* base;
  size_t mapped;
  size_t size;
};

std::mutex mutex;
std::map<uintptr_t, Allocation> allocations;  // by address
size_t total = 0;

size_t page() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

// The allocation that an address lies in or behind; end() when there is none.
std::map<uintptr_t, Allocation>::const_iterator before(const void* pointer) {
  auto found = allocations.upper_bound(reinterpret_cast<uintptr_t>(pointer));
  return found == allocations.begin() ? allocations.end() : --found;
}

}  // namespace

void* allocate(size_t size) {
  const std::lock_guard<std::mutex> lock(mutex);
  const size_t rounded = (size + 15) & ~size_t{15};
  const size_t body = (rounded + page() - 1) / page() * page();
  void* base = ::mmap(nullptr, body + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  uint8_t* const first = static_cast<uint8_t*>(base) + page();
  if (::mprotect(first, body, PROT_READ | PROT_WRITE) != 0) {
    ::munmap(base, body + 2 * page());
    return nullptr;
  }
  uint8_t* const data = first + body - rounded;
  std::memset(data, 0xcd, size);
  allocations[reinterpret_cast<uintptr_t>(data)] = {static_cast<uint8_t*>(base), body + 2 * page(), size};
  total += size;
  return data;
}

bool release(void* pointer) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == allocations.end()) return false;
  ::munmap(found->second.base, found->second.mapped);
  total -= found->second.size;
  allocations.erase(found);
  return true;
}

bool inside(const void* pointer, size_t size) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = before(pointer);
  if (found == allocations.end()) return false;
  const uintptr_t offset = reinterpret_cast<uintptr_t>(pointer) - found->first;
  return offset <= found->second.size && size <= found->second.size - offset;
}

// Called where a kernel was stopped: the lock is free, since kernels call nothing of this file.
std::string describe_address(const void* pointer) {
  const auto found = before(pointer);
  if (found == allocations.end()) return "far from every allocation";
  return std::to_string(reinterpret_cast<uintptr_t>(pointer) - found->first) + " bytes into an allocation of " +
         std::to_string(found->second.size);
}

size_t allocated_bytes() {
  const std::lock_guard<std::mutex> lock(mutex);
  return total;
}

}  // namespace emulation
