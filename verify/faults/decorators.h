// What faults put at a seam.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/seam/decorators.h"

namespace shardproof {

/// Passes on what a collective brought as `change` has made it. The payload itself stays as it is:
/// root's may be a mapped file.
class PendingChanged : public Pending {
 public:
  PendingChanged(std::unique_ptr<Pending> inner, std::function<at::Tensor(at::Tensor)> change)
      : inner_(std::move(inner)), change_(std::move(change)) {}
  Result<at::Tensor> Wait() override {
    SP_ASSIGN(at::Tensor payload, inner_->Wait());
    return change_(std::move(payload));
  }

 private:
  std::unique_ptr<Pending> inner_;
  std::function<at::Tensor(at::Tensor)> change_;
};

/// Shows one byte of one file changed, in a private copy of that page; the file stays as it is.
class PatchedFiles : public FilesDecorator {
 public:
  /// \param patch is given the byte at `offset` of `path` each time that file is mapped.
  PatchedFiles(std::shared_ptr<FileSystem> inner, std::string path, uint64_t offset,
               std::function<void(std::byte*)> patch)
      : FilesDecorator(std::move(inner)),
        path_(std::move(path)),
        offset_(offset),
        patch_(std::move(patch)) {}
  Result<std::shared_ptr<const MappedFile>> Map(const std::string& path) override;

 private:
  std::string path_;
  uint64_t offset_;
  std::function<void(std::byte*)> patch_;
};

}  // namespace shardproof
