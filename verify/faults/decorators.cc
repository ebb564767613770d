#include "verify/faults/decorators.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace shardproof {
namespace {

/// A copy-on-write mapping: only the patched page is ever copied.
class PrivateMapping : public MappedFile {
 public:
  PrivateMapping(std::byte* address, uint64_t size) : address_(address), size_(size) {}
  PrivateMapping(const PrivateMapping&) = delete;
  PrivateMapping& operator=(const PrivateMapping&) = delete;
  ~PrivateMapping() override { ::munmap(address_, size_); }
  const std::byte* data() const override { return address_; }
  uint64_t size() const override { return size_; }

 private:
  std::byte* address_;
  uint64_t size_;
};

}  // namespace

Result<std::shared_ptr<const MappedFile>> PatchedFiles::Map(const std::string& path) {
  SP_ASSIGN(auto mapping, inner_->Map(path));
  if (path != path_ || offset_ >= mapping->size()) return mapping;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* address = ::mmap(nullptr, mapping->size(), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (address == MAP_FAILED) return Internal("file/flip cannot map " + path + " privately");
  auto* bytes = static_cast<std::byte*>(address);
  patch_(bytes + offset_);
  return std::shared_ptr<const MappedFile>(
      std::make_shared<PrivateMapping>(bytes, mapping->size()));
}

}  // namespace shardproof
