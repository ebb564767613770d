// Seams that pass everything through, for decorators to override what they change.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/seam/communicator.h"
#include "src/seam/device.h"
#include "src/seam/observer.h"
#include "src/storage/file_system.h"

namespace shardproof {

class FilesDecorator : public FileSystem {
 public:
  explicit FilesDecorator(std::shared_ptr<FileSystem> inner) : inner_(std::move(inner)) {}
  Result<std::shared_ptr<const MappedFile>> Map(const std::string& path) override {
    return Inner().Map(path);
  }
  Result<std::string> ReadText(const std::string& path, uint64_t bytes_max) override {
    return Inner().ReadText(path, bytes_max);
  }
  bool Exists(const std::string& path) override { return Inner().Exists(path); }
  Result<std::vector<std::string>> List(const std::string& directory) override {
    return Inner().List(directory);
  }
  Status Create(const std::string& path, uint64_t size) override {
    return Inner().Create(path, size);
  }
  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    return Inner().OpenForWrite(path);
  }
  Status MakeDirectory(const std::string& path) override { return Inner().MakeDirectory(path); }
  Status SyncDirectory(const std::string& path) override { return Inner().SyncDirectory(path); }
  Status Rename(const std::string& from, const std::string& to) override {
    return Inner().Rename(from, to);
  }
  Status Replace(const std::string& from, const std::string& to) override {
    return Inner().Replace(from, to);
  }
  Status Exchange(const std::string& a, const std::string& b) override {
    return Inner().Exchange(a, b);
  }
  Status RemoveTree(const std::string& path) override { return Inner().RemoveTree(path); }

 protected:
  /// What every call goes to.
  virtual FileSystem& Inner() { return *inner_; }

  std::shared_ptr<FileSystem> inner_;
};

class DeviceDecorator : public Device {
 public:
  explicit DeviceDecorator(std::shared_ptr<Device> inner) : inner_(std::move(inner)) {}
  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    return inner_->Allocate(shape, dtype, purpose);
  }
  void Copy(void* to, const void* from, uint64_t bytes) override { inner_->Copy(to, from, bytes); }
  std::unique_ptr<PendingCopy> StartCopy(CopyStream stream, const TensorStretch& to,
                                         const TensorStretch& from, uint64_t bytes) override {
    return inner_->StartCopy(stream, to, from, bytes);
  }
  std::shared_ptr<Device> Host() override { return inner_->Host(); }
  bool IsHost() const override { return inner_->IsHost(); }
  bool Holds(const at::Tensor& tensor) const override { return inner_->Holds(tensor); }
  HeldBytes Held() const override { return inner_->Held(); }

 protected:
  std::shared_ptr<Device> inner_;
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
  Result<std::unique_ptr<Pending>> Scatter(at::Tensor payload, std::vector<at::Tensor> payloads,
                                           int64_t root,
                                           std::vector<std::string> tensors) override {
    return inner_->Scatter(std::move(payload), std::move(payloads), root, std::move(tensors));
  }
  Result<int64_t> Max(int64_t value, const std::string& what) override {
    return inner_->Max(value, what);
  }
  Result<std::vector<int64_t>> Sum(std::vector<int64_t> values, const std::string& what) override {
    return inner_->Sum(std::move(values), what);
  }

 protected:
  std::shared_ptr<Communicator> inner_;
};

class ObserverDecorator : public Observer {
 public:
  explicit ObserverDecorator(std::shared_ptr<Observer> inner) : inner_(std::move(inner)) {}
  void Enter(Stage stage) override { inner_->Enter(stage); }
  void Reached(Stage stage, int64_t step, const Model& model) override {
    inner_->Reached(stage, step, model);
  }
  void Keys(const std::vector<std::string>& missing,
            const std::vector<std::string>& unexpected) override {
    inner_->Keys(missing, unexpected);
  }
  void Notice(const std::string& line) override { inner_->Notice(line); }

 protected:
  std::shared_ptr<Observer> inner_;
};

}  // namespace shardproof
