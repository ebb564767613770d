#include "src/digest/torch_op/cuda_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "src/digest/digest_plan.h"

namespace shardproof::digest_internal {
namespace {

// As cuda.h has them; the numbers are part of the driver's ABI.
using Status = int;  // CUresult
using Context = void*;
using Module = void*;
using Function = void*;
constexpr int kMultiprocessorCount = 16;  // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr int kRelaxed = 2;               // CU_STREAM_CAPTURE_MODE_RELAXED

struct Driver {
  std::string missing;  // why there is none
  Status (*init)(unsigned) = nullptr;
  Status (*error_name)(Status, const char**) = nullptr;
  Status (*error_string)(Status, const char**) = nullptr;
  Status (*device_get)(int*, int) = nullptr;
  Status (*device_attribute)(int*, int, int) = nullptr;
  Status (*retain_context)(Context*, int) = nullptr;
  Status (*push_context)(Context) = nullptr;
  Status (*pop_context)(Context*) = nullptr;
  Status (*load_module)(Module*, const void*) = nullptr;
  Status (*get_function)(Function*, Module, const char*) = nullptr;
  Status (*blocks_a_processor)(int*, Function, int, size_t) = nullptr;
  Status (*exchange_capture_mode)(int*) = nullptr;
  Status (*launch)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   void*, void**, void**) = nullptr;
};

Driver LoadDriver() {
  Driver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    driver.missing = std::string("no CUDA driver was found (") + dlerror() + ")";
    return driver;
  }
  auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && driver.missing.empty()) {
      driver.missing = std::string("the CUDA driver is too old: it has no ") + name;
    }
  };
  find(driver.init, "cuInit");
  find(driver.error_name, "cuGetErrorName");
  find(driver.error_string, "cuGetErrorString");
  find(driver.device_get, "cuDeviceGet");
  find(driver.device_attribute, "cuDeviceGetAttribute");
  find(driver.retain_context, "cuDevicePrimaryCtxRetain");
  find(driver.push_context, "cuCtxPushCurrent_v2");
  find(driver.pop_context, "cuCtxPopCurrent_v2");
  find(driver.load_module, "cuModuleLoadData");
  find(driver.get_function, "cuModuleGetFunction");
  find(driver.blocks_a_processor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  find(driver.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  find(driver.launch, "cuLaunchKernel");
  return driver;
}

const Driver& TheDriver() {
  static const Driver driver = LoadDriver();
  return driver;
}

std::string Failed(const char* what, Status status) {
  const char *name = nullptr, *text = nullptr;
  TheDriver().error_name(status, &name);
  TheDriver().error_string(status, &text);
  return std::string(what) + ": " + (name != nullptr ? name : "an unknown error") + " (" +
         (text != nullptr ? text : std::to_string(status)) + ")";
}

/// The primary context, which torch uses too, is current while this lives.
class Current {
 public:
  explicit Current(Context context) : status_(TheDriver().push_context(context)) {}
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    Context context = nullptr;
    if (status_ == 0) TheDriver().pop_context(&context);
  }
  Status Pushed() const { return status_; }

 private:
  Status status_;
};

/// While a graph is captured, loading a module is refused except in this mode, which harms nothing
/// here: what is loaded does not belong to the graph.
class RelaxedCapture {
 public:
  RelaxedCapture() { TheDriver().exchange_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { TheDriver().exchange_capture_mode(&mode_); }

 private:
  int mode_ = kRelaxed;
};

/// What is held of a device from the first launch on, as long as the process lives: contexts and
/// modules are torn down by the driver when it ends.
struct Loaded {
  Context context = nullptr;
  Function few = nullptr, many = nullptr;
  unsigned blocks = 0;  // that run at once
};

std::string Load(int device, Loaded& loaded) {
  const Driver& driver = TheDriver();
  if (!driver.missing.empty()) return driver.missing;
  if (Status status = driver.init(0)) return Failed("the CUDA driver cannot be used", status);
  int number = 0;
  if (Status status = driver.device_get(&number, device)) return Failed("the device", status);
  if (Status status = driver.retain_context(&loaded.context, number)) {
    return Failed("the device's context", status);
  }
  Current current(loaded.context);
  if (Status status = current.Pushed()) return Failed("the device's context", status);
  RelaxedCapture relaxed;
  Module module = nullptr;
  Status status = driver.load_module(&module, shardproof_digest_fatbin);
  if (status == 0) status = driver.get_function(&loaded.few, module, "shardproof_digest_few");
  if (status == 0) status = driver.get_function(&loaded.many, module, "shardproof_digest_many");
  if (status != 0) return Failed("the digest's kernel cannot be loaded", status);
  int processors = 0, blocks = 0;
  status = driver.device_attribute(&processors, kMultiprocessorCount, number);
  if (status == 0) status = driver.blocks_a_processor(&blocks, loaded.many, kThreads, 0);
  if (status != 0) return Failed("the device's properties", status);
  loaded.blocks = static_cast<unsigned>(std::max(1, processors * blocks));
  return {};
}

/// \returns what is loaded, or why nothing is, which is tried anew the next time.
std::string LoadedOn(int device, Loaded& loaded) {
  static std::mutex mutex;
  static auto* known = new std::map<int, Loaded>;  // threads may outlive static objects
  std::lock_guard lock(mutex);
  if (auto found = known->find(device); found != known->end()) {
    loaded = found->second;
    return {};
  }
  std::string wrong = Load(device, loaded);
  if (wrong.empty()) known->emplace(device, loaded);
  return wrong;
}

}  // namespace

std::string LaunchDigest(int device, void* stream, LaunchHead head,
                         std::span<const Segment> segments) {
  struct Few {
    Segment segment[kFewSegments];
  } few;
  struct Many {
    Segment segment[kSegmentsMax];
  } many;
  static_assert(sizeof(LaunchHead) + sizeof(Many) <= 32764, "what parameters of a kernel may have");
  Loaded loaded;
  if (std::string wrong = LoadedOn(device, loaded); !wrong.empty()) return wrong;
  head.segment_count = static_cast<uint32_t>(segments.size());
  const bool is_few = segments.size() <= kFewSegments;
  std::copy(segments.begin(), segments.end(), is_few ? few.segment : many.segment);
  void* parameters[] = {&head, is_few ? static_cast<void*>(&few) : &many};
  const auto blocks = static_cast<unsigned>(std::min<uint64_t>(head.unit_count, loaded.blocks));
  Current current(loaded.context);
  Status status = current.Pushed();
  if (status == 0) {
    status = TheDriver().launch(is_few ? loaded.few : loaded.many, blocks, 1, 1, kThreads, 1, 1, 0,
                                stream, parameters, nullptr);
  }
  return status == 0 ? std::string() : Failed("the digest's kernel was not launched", status);
}

}  // namespace shardproof::digest_internal
