// One archive as torch.save writes it, with one tensor or one value in it: what a file of
// torch.distributed.checkpoint (DCP) is a sequence of. Its size follows from what it holds, so that
// every rank knows where every other writes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shardproof {

/// Items begin at multiples of this in their file, and so does the tensor in an item: what is
/// mapped is aligned for every dtype. Bytes.
inline constexpr uint64_t kItemAlignment = 64;

class TorchItem {
 public:
  /// Of a tensor in row-major order, whose bytes are written between Head and Tail.
  static TorchItem OfTensor(at::ScalarType dtype, const std::vector<int64_t>& shape);
  /// Of a pickle, all of which is in Head.
  static TorchItem OfValue(std::string pickle);

  uint64_t data_offset() const { return data_offset_; }  ///< of the tensor's first byte
  uint64_t data_bytes() const { return data_bytes_; }
  uint64_t bytes() const { return bytes_; }  ///< of all

  /// What stands before the tensor, and after it.

  /// \param crc  CRC-32 of the tensor's bytes.
  std::string Head(uint32_t crc) const;
  std::string Tail(uint32_t crc) const;

 private:
  struct Member {
    std::string_view name;
    std::string content;  ///< unless it is the tensor
    bool is_tensor = false;
    uint64_t offset = 0;   ///< of its local header
    uint64_t padding = 0;  ///< of that, so that the content begins where it should
    uint64_t bytes = 0;
  };

  explicit TorchItem(std::string pickle, bool has_tensor, uint64_t data_bytes);
  static std::string LocalHeader(const Member& member, uint32_t crc);
  uint32_t CrcOf(const Member& member, uint32_t crc) const;

  std::vector<Member> members_;
  uint64_t directory_offset_ = 0;
  uint64_t data_offset_ = 0;
  uint64_t data_bytes_ = 0;
  uint64_t bytes_ = 0;
};

/// CRC-32 as ZIP has it, of bytes that follow those of `crc`; 0 to begin with.
uint32_t Crc32(uint32_t crc, std::string_view bytes);

}  // namespace shardproof
