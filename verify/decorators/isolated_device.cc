#include "verify/decorators/isolated_device.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>

namespace shardproof {
namespace {

/// What is allocated: the same pages twice, once closed to everyone and once for the copies.
struct Apart {
  size_t bytes = 0;
  std::byte* inside = nullptr;
  std::string purpose;
};

/// Outlives the device, as tensors may.
class ApartMemory {
 public:
  /// \returns the closed side; null if there is no memory.
  void* Map(size_t bytes, const std::string& purpose) {
    const int file = ::memfd_create("apart", MFD_CLOEXEC);
    if (file < 0) return nullptr;
    void* outside = MAP_FAILED;
    void* inside = MAP_FAILED;
    if (::ftruncate(file, static_cast<off_t>(bytes)) == 0) {
      outside = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
      inside = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    ::close(file);
    if (outside == MAP_FAILED || inside == MAP_FAILED) {
      if (outside != MAP_FAILED) ::munmap(outside, bytes);
      if (inside != MAP_FAILED) ::munmap(inside, bytes);
      return nullptr;
    }
    const std::lock_guard lock(mutex_);
    mapped_[reinterpret_cast<uintptr_t>(outside)] = {bytes, static_cast<std::byte*>(inside),
                                                     purpose};
    held_.now += bytes;
    held_.peak = std::max(held_.peak, held_.now);
    return outside;
  }

  void Unmap(void* outside) {
    const std::lock_guard lock(mutex_);
    const auto entry = mapped_.find(reinterpret_cast<uintptr_t>(outside));
    ::munmap(outside, entry->second.bytes);
    ::munmap(entry->second.inside, entry->second.bytes);
    held_.now -= entry->second.bytes;
    mapped_.erase(entry);
  }

  /// Where to copy to or from for a pointer: the open side of what is allocated here, else itself.
  std::byte* Open(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto address = reinterpret_cast<uintptr_t>(data);
    auto entry = mapped_.upper_bound(address);
    if (entry == mapped_.begin()) return HostAddress(data);
    --entry;
    if (address - entry->first >= entry->second.bytes) return HostAddress(data);
    return entry->second.inside + (address - entry->first);
  }

  /// What it was allocated for that has this address; null if nothing was. For a process that ends:
  /// it waits for nobody.
  const std::string* PurposeAt(const void* data) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    auto entry = mapped_.upper_bound(address);
    if (entry == mapped_.begin()) return nullptr;
    --entry;
    return address - entry->first < entry->second.bytes ? &entry->second.purpose : nullptr;
  }

  bool Has(const void* data) { return Open(data) != HostAddress(data); }

  HeldBytes held() {
    const std::lock_guard lock(mutex_);
    return held_;
  }

 private:
  static std::byte* HostAddress(const void* data) {
    return static_cast<std::byte*>(const_cast<void*>(data));
  }

  std::mutex mutex_;
  std::map<uintptr_t, Apart> mapped_;  // by the closed side
  HeldBytes held_;
};

/// The memory that this process has; a rank has one.
const ApartMemory* of_process = nullptr;

/// Says which tensor was reached into, and lets the process end as it would have.
void ReportReach(int signal, siginfo_t* info, void*) {
  if (const std::string* purpose = of_process ? of_process->PurposeAt(info->si_addr) : nullptr) {
    std::fprintf(stderr, "accessed device memory of %s without a copy\n", purpose->c_str());
    std::fflush(stderr);
  }
  ::signal(signal, SIG_DFL);  // what is done again ends the process now
}

class ApartDevice : public Device {
 public:
  ApartDevice() {
    of_process = memory_.get();
    struct sigaction action {};
    action.sa_sigaction = ReportReach;
    action.sa_flags = SA_SIGINFO;
    ::sigaction(SIGSEGV, &action, nullptr);
  }
  ~ApartDevice() override {
    if (of_process == memory_.get()) of_process = nullptr;
  }
  ApartDevice(const ApartDevice&) = delete;
  ApartDevice& operator=(const ApartDevice&) = delete;

  Result<at::Tensor> Allocate(at::IntArrayRef shape, at::ScalarType dtype,
                              const std::string& purpose) override {
    const auto options = at::TensorOptions().dtype(dtype);
    uint64_t bytes = c10::elementSize(dtype);
    for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
    if (bytes == 0) return at::empty(shape, options);
    void* data = memory_->Map(bytes, purpose);
    if (data == nullptr) return Failed(fmt::format("allocating {} bytes for {}", bytes, purpose));
    return at::from_blob(
        data, shape, [memory = memory_](void* at) { memory->Unmap(at); }, options);
  }

  void Copy(void* to, const void* from, uint64_t bytes) override {
    std::memcpy(memory_->Open(to), memory_->Open(from), bytes);
  }
  bool IsHost() const override { return false; }
  bool Holds(const at::Tensor& tensor) const override {
    return tensor.nbytes() > 0 && memory_->Has(tensor.const_data_ptr());
  }
  HeldBytes Held() const override { return memory_->held(); }

 private:
  std::shared_ptr<ApartMemory> memory_ = std::make_shared<ApartMemory>();
};

}  // namespace

std::shared_ptr<Device> MakeApartDevice() { return std::make_shared<ApartDevice>(); }

}  // namespace shardproof
