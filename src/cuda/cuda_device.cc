// A GPU's memory.
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>

#include "src/aten/torch_try.h"
#include "src/cuda/plugin.h"

namespace shardproof {
namespace {

constexpr uint64_t kPinnedBytes = 4u
                                  << 20;  // of each of two buffers: one is filled while one travels

/// When the GPU is done with what was given to it.
class Event {
 public:
  Event() { C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Host memory that the GPU reads and writes by itself, and when it is done with it.
struct Pinned {
  Pinned() { C10_CUDA_CHECK(cudaMallocHost(&data, kPinnedBytes)); }
  ~Pinned() { (void)cudaFreeHost(data); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  Event done;  // made first, since only what is made whole is freed
  void* data = nullptr;
};

/// The host's memory that GPUs read and write by themselves.
class PinnedHost : public Device {
 public:
  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    return TorchTry(
        ErrorCode::kFailed, fmt::format("allocating pinned memory for {}", purpose),
        [&] { return at::empty(shape, at::TensorOptions().dtype(dtype).pinned_memory(true)); });
  }
};

/// A copy on a side stream; keeps what it reads and writes.
class CudaCopy : public PendingCopy {
 public:
  CudaCopy(cudaStream_t stream, TensorStretch to, TensorStretch from)
      : to_(std::move(to)), from_(std::move(from)) {
    C10_CUDA_CHECK(cudaEventRecord(done_.get(), stream));
  }
  ~CudaCopy() override {
    (void)cudaEventSynchronize(done_.get());  // the memory may go now
  }
  CudaCopy(const CudaCopy&) = delete;
  CudaCopy& operator=(const CudaCopy&) = delete;
  void Wait() override { C10_CUDA_CHECK(cudaEventSynchronize(done_.get())); }

 private:
  TensorStretch to_;
  TensorStretch from_;
  Event done_;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index)
      : index_(static_cast<c10::DeviceIndex>(index)),
        side_streams_{c10::cuda::getStreamFromPool(false, index_),
                      c10::cuda::getStreamFromPool(false, index_)} {
    c10::cuda::CUDACachingAllocator::resetPeakStats(index_);
  }

  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    return TorchTry(
        ErrorCode::kFailed, fmt::format("allocating for {} on GPU {}", purpose, index_), [&] {
          return at::empty(shape,
                           at::TensorOptions().dtype(dtype).device(at::Device(at::kCUDA, index_)));
        });
  }

  void Copy(void* to, const void* from, uint64_t bytes) override {
    if (bytes == 0) return;
    const c10::cuda::CUDAGuard guard(index_);
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(index_);
    const bool in = !IsOnDevice(from);
    const bool out = !IsOnDevice(to);
    if (in && out) {
      std::memcpy(to, from, bytes);
    } else if (in) {
      CopyIn(static_cast<char*>(to), static_cast<const char*>(from), bytes, stream);
    } else if (out) {
      CopyOut(static_cast<char*>(to), static_cast<const char*>(from), bytes, stream);
    } else {
      // What follows on the stream sees it; the host has nothing to wait for.
      C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
    }
  }

  std::unique_ptr<PendingCopy> StartCopy(CopyStream stream, const TensorStretch& to,
                                         const TensorStretch& from, uint64_t bytes) override {
    const c10::cuda::CUDAGuard guard(index_);
    const c10::cuda::CUDAStream& side = side_streams_[static_cast<size_t>(stream)];
    at::cuda::CUDAEvent before;
    before.record(c10::cuda::getCurrentCUDAStream(index_));
    before.block(side);
    C10_CUDA_CHECK(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDefault, side));
    return std::make_unique<CudaCopy>(side, to, from);
  }
  std::shared_ptr<Device> Host() override { return std::make_shared<PinnedHost>(); }

  bool IsHost() const override { return false; }
  bool Holds(const at::Tensor& tensor) const override { return tensor.is_cuda(); }
  HeldBytes Held() const override {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(index_);
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const auto& allocated = stats.allocated_bytes[all];
    return {static_cast<uint64_t>(allocated.current), static_cast<uint64_t>(allocated.peak)};
  }

 private:
  static bool IsOnDevice(const void* data) {
    cudaPointerAttributes attributes{};
    C10_CUDA_CHECK(cudaPointerGetAttributes(&attributes, data));
    return attributes.type == cudaMemoryTypeDevice;
  }

  void CopyIn(char* to, const char* from, uint64_t bytes, cudaStream_t stream) {
    size_t turn = 0;
    for (uint64_t done = 0; done < bytes; done += kPinnedBytes) {
      Pinned& buffer = pinned_[turn++ % pinned_.size()];
      const uint64_t length = std::min(kPinnedBytes, bytes - done);
      C10_CUDA_CHECK(cudaEventSynchronize(buffer.done.get()));  // free again only now
      std::memcpy(buffer.data, from + done, length);
      C10_CUDA_CHECK(
          cudaMemcpyAsync(to + done, buffer.data, length, cudaMemcpyHostToDevice, stream));
      C10_CUDA_CHECK(cudaEventRecord(buffer.done.get(), stream));
    }
  }

  void CopyOut(char* to, const char* from, uint64_t bytes, cudaStream_t stream) {
    Pinned& buffer = pinned_[0];
    for (uint64_t done = 0; done < bytes; done += kPinnedBytes) {
      const uint64_t length = std::min(kPinnedBytes, bytes - done);
      C10_CUDA_CHECK(cudaEventSynchronize(buffer.done.get()));
      C10_CUDA_CHECK(
          cudaMemcpyAsync(buffer.data, from + done, length, cudaMemcpyDeviceToHost, stream));
      C10_CUDA_CHECK(cudaStreamSynchronize(stream));
      std::memcpy(to + done, buffer.data, length);
    }
  }

  c10::DeviceIndex index_;
  std::array<Pinned, 2> pinned_;
  std::array<c10::cuda::CUDAStream, 2> side_streams_;  ///< by CopyStream
};

}  // namespace

int CudaDeviceCount() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Result<std::shared_ptr<Device>> MakeCudaDevice(int index) {
  return TorchTry(ErrorCode::kFailed, fmt::format("opening GPU {}", index), [&] {
    c10::cuda::set_device(static_cast<c10::DeviceIndex>(index));
    // Its allocator is made by the first tensor.
    (void)at::empty({1}, at::TensorOptions().dtype(at::kByte).device(
                             at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(index))));
    return std::shared_ptr<Device>(std::make_shared<CudaDevice>(index));
  });
}

}  // namespace shardproof
