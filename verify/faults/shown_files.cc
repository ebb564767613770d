#include "verify/faults/shown_files.h"

#include <utility>

#include "src/seam/decorators.h"

namespace shardproof {
namespace {

class Text : public MappedFile {
 public:
  explicit Text(std::string bytes) : bytes_(std::move(bytes)) {}
  const std::byte* data() const override {
    return reinterpret_cast<const std::byte*>(bytes_.data());
  }
  uint64_t size() const override { return bytes_.size(); }

 private:
  const std::string bytes_;
};

class ShownFiles : public FilesDecorator {
 public:
  ShownFiles(std::shared_ptr<FileSystem> inner, ShownText shown)
      : FilesDecorator(std::move(inner)), shown_(std::move(shown)) {}

  Result<std::shared_ptr<const MappedFile>> Map(const std::string& path) override {
    SP_ASSIGN(auto mapping, inner_->Map(path));
    auto other = shown_(path, {reinterpret_cast<const char*>(mapping->data()), mapping->size()});
    if (!other) return mapping;
    return MapText(*std::move(other));
  }

  Result<std::string> ReadText(const std::string& path, uint64_t bytes_max) override {
    SP_ASSIGN(std::string text, inner_->ReadText(path, bytes_max));
    return shown_(path, text).value_or(std::move(text));
  }

 private:
  const ShownText shown_;
};

}  // namespace

std::shared_ptr<const MappedFile> MapText(std::string text) {
  return std::make_shared<Text>(std::move(text));
}

std::shared_ptr<FileSystem> ShowOther(std::shared_ptr<FileSystem> inner, ShownText shown) {
  return std::make_shared<ShownFiles>(std::move(inner), std::move(shown));
}

}  // namespace shardproof
