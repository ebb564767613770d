// Seams that pass everything through, for decorators to override what they change.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/pipeline/job.h"

namespace shardproof {

class FilesDecorator : public FileSystem {
 public:
  explicit FilesDecorator(std::shared_ptr<FileSystem> inner) : inner_(std::move(inner)) {}
  Result<std::shared_ptr<const MappedFile>> Map(const std::string& path) override {
    return inner_->Map(path);
  }
  Result<std::string> ReadText(const std::string& path, uint64_t bytes_max) override {
    return inner_->ReadText(path, bytes_max);
  }
  bool Exists(const std::string& path) override { return inner_->Exists(path); }
  Result<std::vector<std::string>> List(const std::string& directory) override {
    return inner_->List(directory);
  }
  Status Create(const std::string& path, uint64_t size) override {
    return inner_->Create(path, size);
  }
  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    return inner_->OpenForWrite(path);
  }
  Status MakeDirectory(const std::string& path) override { return inner_->MakeDirectory(path); }
  Status SyncDirectory(const std::string& path) override { return inner_->SyncDirectory(path); }
  Status Rename(const std::string& from, const std::string& to) override {
    return inner_->Rename(from, to);
  }
  Status Exchange(const std::string& a, const std::string& b) override {
    return inner_->Exchange(a, b);
  }
  Status RemoveTree(const std::string& path) override { return inner_->RemoveTree(path); }

 protected:
  std::shared_ptr<FileSystem> inner_;
};

class CommunicatorDecorator : public Communicator {
 public:
  explicit CommunicatorDecorator(std::shared_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int64_t rank() const override { return inner_->rank(); }
  int64_t world_size() const override { return inner_->world_size(); }
  Result<std::unique_ptr<Pending>> Broadcast(at::Tensor payload, int64_t root,
                                             std::vector<Piece> pieces) override {
    return inner_->Broadcast(std::move(payload), root, std::move(pieces));
  }
  Result<int64_t> Max(int64_t value, const std::string& what) override {
    return inner_->Max(value, what);
  }

 protected:
  std::shared_ptr<Communicator> inner_;
};

class ObserverDecorator : public Observer {
 public:
  explicit ObserverDecorator(std::shared_ptr<Observer> inner) : inner_(std::move(inner)) {}
  void Enter(const std::string& stage) override { inner_->Enter(stage); }
  void Reached(const std::string& stage, int64_t step, const Model& model) override {
    inner_->Reached(stage, step, model);
  }
  void Keys(const std::vector<std::string>& missing,
            const std::vector<std::string>& unexpected) override {
    inner_->Keys(missing, unexpected);
  }

 protected:
  std::shared_ptr<Observer> inner_;
};

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
