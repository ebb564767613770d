#include "verify/engine/other_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "verify/verdict/explain.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlockBytes = size_t{1} << 20;

/// The length of a safetensors file up to its data; of one that is none, all of it.
uint64_t HeaderBytes(std::ifstream& file, uint64_t file_bytes) {
  std::array<unsigned char, 8> length{};
  if (!file.read(reinterpret_cast<char*>(length.data()), length.size())) return file_bytes;
  uint64_t header_bytes = 0;
  for (size_t i = length.size(); i-- > 0;) header_bytes = header_bytes << 8 | length[i];
  if (header_bytes > file_bytes - length.size()) return file_bytes;
  return header_bytes + length.size();
}

Status WriteFileLike(const fs::path& source, const fs::path& target) {
  std::error_code error;
  const uint64_t file_bytes = fs::file_size(source, error);
  std::ifstream in(source, std::ios::binary);
  if (error || !in) return BadInput(fmt::format("{}: cannot be read", source.string()));
  const uint64_t header_bytes = HeaderBytes(in, file_bytes);
  in.clear();
  in.seekg(0);
  fs::remove(target, error);
  std::ofstream out(target, std::ios::binary);
  std::vector<char> block(kBlockBytes);
  for (uint64_t done = 0; done < file_bytes && out;) {
    const bool in_header = done < header_bytes;
    const uint64_t end = in_header ? header_bytes : file_bytes;
    const auto count = static_cast<std::streamsize>(std::min<uint64_t>(kBlockBytes, end - done));
    if (in_header && !in.read(block.data(), count)) {
      return BadInput(fmt::format("{}: cannot be read", source.string()));
    }
    if (!in_header) std::fill(block.begin(), block.end(), static_cast<char>(kOthersByte));
    out.write(block.data(), count);
    done += static_cast<uint64_t>(count);
  }
  out.close();
  if (!out) return BadInput(fmt::format("{}: cannot be written", target.string()));
  return Ok();
}

}  // namespace

Status WriteOtherValues(const std::string& source, const std::string& target) {
  if (fs::is_regular_file(source)) return WriteFileLike(source, target);
  std::error_code error;
  fs::remove_all(target, error);
  fs::create_directories(target, error);
  if (error) return BadInput(fmt::format("{}: cannot be made: {}", target, error.message()));
  for (const auto& entry : fs::directory_iterator(source, error)) {
    const fs::path place = fs::path(target) / entry.path().filename();
    if (entry.path().extension() == ".safetensors" && entry.is_regular_file()) {
      SP_TRY(WriteFileLike(entry.path(), place));
    } else {
      fs::create_symlink(fs::absolute(entry.path()), place, error);
    }
    if (error) return BadInput(fmt::format("{}: cannot be made", place.string()));
  }
  if (error) return BadInput(fmt::format("{}: cannot be read: {}", source, error.message()));
  return Ok();
}

}  // namespace shardproof
