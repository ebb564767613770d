// What a checkpoint's pickles may name. torch 2.11 and 2.15 write these (torch.save of tensors,
// modules' and optimizers' state, DCP's .metadata), and NumPy and Python for numbers and random
// state.
#include <algorithm>
#include <array>

#include "src/pickle/pickle.h"

namespace shardproof::pickle {
namespace {

struct Entry {
  std::string_view module;
  std::string_view name;
  PickleCall call;
};

constexpr std::string_view kDcp = "torch.distributed.checkpoint.metadata";

constexpr std::array kEntries = {
    Entry{kDcp, "Metadata", PickleCall::kObject},
    Entry{kDcp, "MetadataIndex", PickleCall::kObject},
    Entry{kDcp, "TensorStorageMetadata", PickleCall::kObject},
    Entry{kDcp, "BytesStorageMetadata", PickleCall::kObject},
    Entry{kDcp, "TensorProperties", PickleCall::kObject},
    Entry{kDcp, "ChunkStorageMetadata", PickleCall::kObject},
    Entry{kDcp, "StorageMeta", PickleCall::kObject},
    Entry{kDcp, "_MEM_FORMAT_ENCODING", PickleCall::kObject},
    Entry{"torch.distributed.checkpoint.filesystem", "_StorageInfo", PickleCall::kObject},
    Entry{"torch.distributed.checkpoint.hf_storage", "_HFStorageInfo", PickleCall::kObject},
    Entry{"torch._utils", "_rebuild_tensor", PickleCall::kObject},
    Entry{"torch._utils", "_rebuild_tensor_v2", PickleCall::kObject},
    Entry{"torch._utils", "_rebuild_tensor_v3", PickleCall::kObject},
    Entry{"torch._utils", "_rebuild_parameter", PickleCall::kObject},
    Entry{"torch._utils", "_rebuild_parameter_with_state", PickleCall::kObject},
    Entry{"torch._utils", "_rebuild_meta_tensor_no_storage", PickleCall::kObject},
    Entry{"torch.serialization", "_get_layout", PickleCall::kObject},
    Entry{"torch", "device", PickleCall::kObject},
    Entry{"torch", "Size", PickleCall::kTuple},
    Entry{"collections", "OrderedDict", PickleCall::kDict},
    Entry{"collections", "defaultdict", PickleCall::kDict},
    Entry{"collections", "Counter", PickleCall::kObject},
    Entry{"collections", "deque", PickleCall::kObject},
    Entry{"pathlib", "PosixPath", PickleCall::kObject},
    Entry{"pathlib", "PurePosixPath", PickleCall::kObject},
    Entry{"pathlib", "Path", PickleCall::kObject},
    Entry{"pathlib._local", "PosixPath", PickleCall::kObject},
    Entry{"argparse", "Namespace", PickleCall::kObject},
    Entry{"types", "SimpleNamespace", PickleCall::kObject},
    Entry{"datetime", "datetime", PickleCall::kObject},
    Entry{"datetime", "timedelta", PickleCall::kObject},
    Entry{"datetime", "date", PickleCall::kObject},
    Entry{"datetime", "time", PickleCall::kObject},
    Entry{"datetime", "timezone", PickleCall::kObject},
    Entry{"_codecs", "encode", PickleCall::kEncode},
    Entry{"_io", "BytesIO", PickleCall::kObject},
    Entry{"builtins", "set", PickleCall::kSet},
    Entry{"builtins", "frozenset", PickleCall::kSet},
    Entry{"builtins", "list", PickleCall::kName},
    Entry{"builtins", "dict", PickleCall::kName},
    Entry{"builtins", "int", PickleCall::kName},
    Entry{"builtins", "range", PickleCall::kObject},
    Entry{"builtins", "float", PickleCall::kName},
    Entry{"builtins", "complex", PickleCall::kObject},
    Entry{"builtins", "slice", PickleCall::kObject},
    Entry{"builtins", "bytearray", PickleCall::kObject},
    Entry{"builtins", "getattr", PickleCall::kMember},
    Entry{"numpy", "ndarray", PickleCall::kName},
    Entry{"numpy", "dtype", PickleCall::kObject},
    Entry{"numpy.core.multiarray", "_reconstruct", PickleCall::kObject},
    Entry{"numpy.core.multiarray", "scalar", PickleCall::kObject},
    Entry{"numpy._core.multiarray", "_reconstruct", PickleCall::kObject},
    Entry{"numpy._core.multiarray", "scalar", PickleCall::kObject},
    Entry{"numpy.core.numeric", "_frombuffer", PickleCall::kObject},
    Entry{"numpy._core.numeric", "_frombuffer", PickleCall::kObject},
};

constexpr std::array<std::string_view, 42> kTorchNames = {
    // dtypes
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
    "float8_e5m2fnuz", "float8_e8m0fnu", "complex128", "complex64", "complex32", "int64", "int32",
    "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
    // what protocol 2 calls a storage's type
    "DoubleStorage", "FloatStorage", "HalfStorage", "BFloat16Storage", "LongStorage", "IntStorage",
    "ShortStorage", "CharStorage", "ByteStorage", "BoolStorage", "ComplexDoubleStorage",
    "ComplexFloatStorage", "QInt8Storage", "QInt32Storage", "QUInt8Storage",
    // memory formats and layouts by name
    "contiguous_format", "preserve_format", "channels_last", "channels_last_3d", "strided",
    "sparse_coo"};

// Of Python's own modules, those whose names can run what a pickle says; "commands" is how protocol
// 2 calls subprocess.
constexpr std::array kRunning = {
    "os",         "posix",   "nt",        "subprocess", "commands",  "sys",
    "importlib",  "imp",     "runpy",     "pty",        "shutil",    "socket",
    "ctypes",     "_ctypes", "code",      "codeop",     "pickle",    "_pickle",
    "cPickle",    "marshal", "types",     "_thread",    "timeit",    "pdb",
    "webbrowser", "asyncio", "zipimport", "pkgutil",    "operator",  "pip",
    "urllib",     "urllib2", "http",      "setuptools", "distutils", "multiprocessing"};
constexpr std::array kRunningNames = {"torch.serialization.",
                                      "torch.load",
                                      "torch.hub.",
                                      "torch.jit.",
                                      "torch.utils.cpp_extension.",
                                      "numpy.load",
                                      "numpy.testing.",
                                      "numpy.f2py.",
                                      "io.open",
                                      "_io.open",
                                      "io.FileIO",
                                      "_io.FileIO"};

// Of builtins, those that run, import or open something, or lead to what does.
constexpr std::array kRunningBuiltins = {
    "eval",    "exec",    "execfile", "compile", "open",   "file", "input",      "raw_input",
    "getattr", "setattr", "delattr",  "globals", "locals", "vars", "breakpoint", "help",
    "apply",   "map",     "filter",   "reduce",  "reload", "exit", "quit"};

}  // namespace

bool MayRunPrograms(std::string_view module, std::string_view name) {
  const std::string_view package = module.substr(0, module.find('.'));
  if (package == "builtins") {
    return name.starts_with("__") || name.find('.') != std::string_view::npos ||
           std::find(kRunningBuiltins.begin(), kRunningBuiltins.end(), name) !=
               kRunningBuiltins.end();
  }
  const std::string whole = std::string(module) + "." + std::string(name);
  const auto is_running = [](std::string_view part) {
    return std::find(kRunning.begin(), kRunning.end(), part) != kRunning.end();
  };
  // A dotted name reaches the modules that a module has imported: torch's "hub.os".
  for (std::string_view rest = name; rest.find('.') != std::string_view::npos;) {
    if (is_running(rest.substr(0, rest.find('.')))) return true;
    rest.remove_prefix(rest.find('.') + 1);
  }
  return is_running(package) ||
         std::any_of(kRunningNames.begin(), kRunningNames.end(),
                     [&](std::string_view begin) { return whole.starts_with(begin); });
}

PickleCall FindPickleName(std::string_view module, std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.module == module && entry.name == name) return entry.call;
  }
  if (module == "torch" &&
      std::find(kTorchNames.begin(), kTorchNames.end(), name) != kTorchNames.end()) {
    return PickleCall::kName;
  }
  if (module == "torch.storage" && (name == "UntypedStorage" || name == "TypedStorage")) {
    return PickleCall::kName;
  }
  return PickleCall::kUnknown;
}

}  // namespace shardproof::pickle
