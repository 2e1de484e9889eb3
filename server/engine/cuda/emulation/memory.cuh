// Device memory of the emulation: every allocation ends at a page that no access survives.
#pragma once

#include <cstddef>
#include <string>

namespace emulation {

void* allocate(size_t size);      // poisoned with 0xCD, 16-byte aligned; nullptr when there is no memory
bool release(void* pointer);      // false: not an allocation
bool inside(const void* pointer, size_t size);  // of one allocation
std::string describe_address(const void* pointer);
size_t allocated_bytes();

}  // namespace emulation
