// idx.h -- reader of IDX files (the format of MNIST), plain or gzip-compressed, of unsigned bytes.
//
//   [0] [0] [8: unsigned byte] [rank] [rank extents, u32 big endian] [data, last axis fastest]
//
// The size is checked against the header before memory is taken, and the data must end exactly where the header says.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace situ::data {

struct Idx {
  std::vector<int64_t> shape;
  std::vector<uint8_t> data;
};

// Compressed or not is seen from the contents, not from the name.
Idx read_idx(const std::string& path);

}  // namespace situ::data
