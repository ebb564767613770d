// What torch.save wrote: a pickle, and the storages that its tensors are views of, in one ZIP
// archive.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"
#include "src/pickle/pickle.h"
#include "verify/formats/zip.h"
#include "verify/oracle/dtype.h"
#include "verify/oracle/input_file.h"

namespace shardproof::formats {

using pickle::Pickle;
using pickle::PickleValue;
using pickle::ReadPickle;
using pickle::UnknownNames;

/// A strided tensor somewhere in a file.
struct TorchTensor {
  std::string dtype;             ///< safetensors' name
  std::vector<int64_t> shape;    ///< elements
  std::vector<int64_t> strides;  ///< elements, none negative
  uint64_t offset = 0;           ///< of its first element in the file, bytes
  /// What torch does with the elements when it loads them: "conj", "neg", both, or nothing.
  std::string lazy = {};
};

/// Whether a value is a tensor that was saved with its class, attributes or both:
/// _rebuild_from_type_v2(function, class, arguments, state).
bool IsFromType(const PickleValue& value);

class TorchArchive {
 public:
  /// The archive that is bytes [start, start + length) of `file`.
  /// \error kBadInput: not such an archive, one of TorchScript or of a big-endian machine, a
  /// damaged one,
  ///   a pickle that is refused (ReadPickle), or is not that of its CRC-32 (is_rotten is set).
  static Result<TorchArchive> Open(std::shared_ptr<const oracle::InputFile> file, uint64_t start,
                                   uint64_t length, bool* is_rotten = nullptr);

  const PickleValue& root() const { return pickle_.root(); }
  const Pickle& pickle() const { return pickle_; }

  /// All that is in it; their names are without the folder that they are in.
  const std::vector<ZipEntry>& entries() const { return entries_; }

  /// The tensor or parameter that a value stands for, or a storage, as a vector; nothing if it
  /// stands for something else. Attributes that were set on a tensor are left out.
  /// \param is_lazy_too  whether one that torch changes when it loads it is wanted.
  /// \error kBadInput: without its storage, or beyond its end;
  /// kUnsupported: of a dtype or kind that is
  ///   not known.
  Result<std::optional<TorchTensor>> AsTensor(const PickleValue& value,
                                              bool is_lazy_too = false) const;

 private:
  Error Wrong(const std::string& expected, const std::string& found) const;
  /// An entry that tensors are views of.
  struct Storage {
    const oracle::DtypeInfo* dtype;
    uint64_t offset;  ///< in the file
    uint64_t elements;
    uint64_t bytes;
    int64_t numbers;  ///< of each element: 2 of C128, which is read as F64 with a last dim of 2
  };
  Result<Storage> StorageOf(const PickleValue& persistent) const;
  Result<TorchTensor> View(const PickleValue& call) const;
  /// \param text  of the entry that says which version of the format the archive has.
  Status CheckVersion(const std::string& text) const;
  /// What is to be done with what is read, joined by dots. \error if it is not known.
  Result<std::string> LazyOf(const PickleValue& call, bool is_v3) const;

  std::shared_ptr<const oracle::InputFile> file_;
  std::string where_;
  std::vector<ZipEntry> entries_;
  std::map<std::string_view, const ZipEntry*> storages_;  ///< by key; of entries_
  Pickle pickle_;
};

/// The safetensors name of a dtype that a pickle names ("torch.float32", "torch.FloatStorage");
/// empty if there is none.
std::string_view DtypeOfName(std::string_view name);

/// Sizes, offsets or strides: a tuple or list of integers of at least 0. \error kBadInput, `what`
/// in it.
Result<std::vector<int64_t>> Sizes(const PickleValue& value, const std::string& what);

}  // namespace shardproof::formats
