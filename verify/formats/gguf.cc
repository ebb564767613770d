#include "verify/formats/gguf.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include "src/text/python_notation.h"
#include "verify/oracle/dtype.h"
#include "verify/oracle/header.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace gguf {
namespace {

using oracle::Printable;
using oracle::Quote;

constexpr uint64_t kWindowBytes = 1u << 20;
constexpr uint64_t kTextBytesMax = uint64_t{256} << 20;  // of all names and values
constexpr uint64_t kDimsMax = 8;
constexpr uint64_t kElementsMax = uint64_t{1} << 56;  // its bytes then are a number of 64 bits
constexpr int kNestingMax = 4;
constexpr uint64_t kDefaultAlignment = 32;

/// How ggml stores a type of tensor: so many elements in a block of so many bytes.
struct TensorType {
  uint32_t id;
  const char* name;
  const char* dtype;  ///< safetensors' name; of blocks of codes and scales: that of the scales
  uint64_t block_elements;
  uint64_t block_bytes;
  std::vector<uint64_t> scales = {};  ///< bytes from the block's start to each of its scales

  bool IsPlain() const { return block_elements == 1; }
};

const std::vector<TensorType>& Types() {
  // Scales as ggml_validate_row_data of ggml looks at them: in NVFP4 every byte is one that is
  // right. IQ1_M has the bits of its scale apart.
  static const std::vector<TensorType> kTypes = {
      {0, "F32", "F32", 1, 4},
      {1, "F16", "F16", 1, 2},
      {2, "Q4_0", "F16", 32, 18, {0}},
      {3, "Q4_1", "F16", 32, 20, {0, 2}},
      {6, "Q5_0", "F16", 32, 22, {0}},
      {7, "Q5_1", "F16", 32, 24, {0, 2}},
      {8, "Q8_0", "F16", 32, 34, {0}},
      {9, "Q8_1", "F16", 32, 40},
      {10, "Q2_K", "F16", 256, 84, {80, 82}},
      {11, "Q3_K", "F16", 256, 110, {108}},
      {12, "Q4_K", "F16", 256, 144, {0, 2}},
      {13, "Q5_K", "F16", 256, 176, {0, 2}},
      {14, "Q6_K", "F16", 256, 210, {208}},
      {15, "Q8_K", "F32", 256, 292, {0}},
      {16, "IQ2_XXS", "F16", 256, 66, {0}},
      {17, "IQ2_XS", "F16", 256, 74, {0}},
      {18, "IQ3_XXS", "F16", 256, 98, {0}},
      {19, "IQ1_S", "F16", 256, 50, {0}},
      {20, "IQ4_NL", "F16", 32, 18, {0}},
      {21, "IQ3_S", "F16", 256, 110, {0}},
      {22, "IQ2_S", "F16", 256, 82, {0}},
      {23, "IQ4_XS", "F16", 256, 136, {0}},
      {24, "I8", "I8", 1, 1},
      {25, "I16", "I16", 1, 2},
      {26, "I32", "I32", 1, 4},
      {27, "I64", "I64", 1, 8},
      {28, "F64", "F64", 1, 8},
      {29, "IQ1_M", "F16", 256, 56},
      {30, "BF16", "BF16", 1, 2},
      {34, "TQ1_0", "F16", 256, 54, {52}},
      {35, "TQ2_0", "F16", 256, 66, {64}},
      {39, "MXFP4", "F8_E8M0", 32, 17, {0}},
      {40, "NVFP4", "F8_E4M3", 64, 36},
      {41, "Q1_0", "F16", 128, 18, {0}},
  };
  return kTypes;
}

/// The kinds of values, by their numbers in the file.
enum Kind : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kText,
  kList,
  kU64,
  kI64,
  kF64
};

class Reader {
 public:
  Reader(const std::string& path, std::shared_ptr<const oracle::InputFile> file, Damage* damage)
      : path_(path), file_(std::move(file)), damage_(damage) {}

  Result<StoredCheckpoint> Run() {
    checkpoint_.format = "GGUF";
    checkpoint_.files.push_back(
        {std::filesystem::path(path_).filename().string(), path_, file_->size()});
    at_ = 4;  // behind the magic
    SP_ASSIGN(const auto version, Number<uint32_t>("the version"));
    if (version != 2 && version != 3) {
      return Unsupported(
          fmt::format("{}: version {} of GGUF, which is not known", Printable(path_), version));
    }
    SP_ASSIGN(const uint64_t tensors, Count("tensors", 24));
    SP_ASSIGN(const uint64_t values, Count("key-value pairs", 13));
    for (uint64_t i = 0; i < values; ++i) SP_TRY(ReadValue());
    for (uint64_t i = 0; i < tensors; ++i) SP_TRY(ReadTensor());
    SP_TRY(Place());
    if (parts_ > 1) {
      checkpoint_.unjudged.push_back(
          fmt::format("{}: is part {} of {}, of which the others are not read", Printable(path_),
                      part_ + 1, parts_));
    }
    SP_TRY(SortByName(path_, checkpoint_));
    return std::move(checkpoint_);
  }

 private:
  Error Wrong(const std::string& expected, const std::string& found) const {
    return BadInput(fmt::format("{}: offset {}: expected {}, found {}", Printable(path_), at_,
                                expected, found));
  }

  /// The next bytes, which are in the window until the next call.
  Result<const char*> Take(uint64_t bytes, const char* what) {
    const uint64_t left = file_->size() - at_;
    if (bytes > left)
      return Wrong(fmt::format("{} bytes of {}", bytes, what), fmt::format("{}", left));
    if (at_ < window_start_ || at_ + bytes > window_start_ + window_.size()) {
      window_.resize(std::min(left, std::max(kWindowBytes, bytes)));
      window_start_ = at_;
      SP_TRY(file_->ReadAt(at_, window_.size(), window_.data()));
    }
    const char* found = window_.data() + (at_ - window_start_);
    at_ += bytes;
    return found;
  }

  template <typename T>
  Result<T> Number(const char* what) {
    SP_ASSIGN(const char* bytes, Take(sizeof(T), what));
    T number;
    std::memcpy(&number, bytes, sizeof number);
    return number;
  }

  /// A number of things that take at least so many bytes each.
  Result<uint64_t> Count(const char* what, uint64_t bytes_each) {
    SP_ASSIGN(const auto count, Number<uint64_t>(what));
    if (count <= (file_->size() - at_) / bytes_each) return count;
    return Wrong(fmt::format("no more {} than fit into the file", what), fmt::format("{}", count));
  }

  Result<std::string> Text(const char* what) {
    SP_ASSIGN(const uint64_t bytes, Count(what, 1));
    checkpoint_.text_bytes += bytes;
    if (checkpoint_.text_bytes > kTextBytesMax) {
      return Wrong(fmt::format("at most {} bytes of names and texts", kTextBytesMax), "more");
    }
    SP_ASSIGN(const char* text, Take(bytes, what));
    return std::string(text, bytes);
  }

  template <typename T>
  Result<std::string> NumberText() {
    SP_ASSIGN(const T number, Number<T>("a value"));
    if constexpr (std::is_floating_point_v<T>) return text::PythonFloat(number);
    return fmt::format("{}", +number);
  }

  /// A value in Python's notation.
  Result<std::string> ValueText(uint32_t kind, int depth) {
    switch (kind) {
      case kU8:
        return NumberText<uint8_t>();
      case kI8:
        return NumberText<int8_t>();
      case kU16:
        return NumberText<uint16_t>();
      case kI16:
        return NumberText<int16_t>();
      case kU32:
        return NumberText<uint32_t>();
      case kI32:
        return NumberText<int32_t>();
      case kU64:
        return NumberText<uint64_t>();
      case kI64:
        return NumberText<int64_t>();
      case kF32:
        return NumberText<float>();
      case kF64:
        return NumberText<double>();
      case kBool: {
        SP_ASSIGN(const auto number, Number<uint8_t>("a bool"));
        return std::string(number != 0 ? "True" : "False");
      }
      case kText: {
        SP_ASSIGN(const std::string found, Text("a text"));
        return text::PythonText(found);
      }
      case kList:
        return ListText(depth);
      default:
        return Wrong("a kind of value from 0 to 12", fmt::format("{}", kind));
    }
  }

  Result<std::string> ListText(int depth) {
    if (depth >= kNestingMax) return Wrong(fmt::format("at most {} lists", kNestingMax), "more");
    SP_ASSIGN(const auto kind, Number<uint32_t>("a list"));
    SP_ASSIGN(const uint64_t count, Count("items", 1));
    std::string text = "[";
    for (uint64_t i = 0; i < count; ++i) {
      SP_ASSIGN(const std::string item, ValueText(kind, depth + 1));
      text += (i == 0 ? "" : ", ") + item;
      if (checkpoint_.text_bytes + text.size() > kTextBytesMax) {
        return Wrong(fmt::format("at most {} bytes of names and texts", kTextBytesMax), "more");
      }
    }
    return text + "]";
  }

  Status ReadValue() {
    SP_ASSIGN(std::string name, Text("a value's name"));
    SP_ASSIGN(const auto kind, Number<uint32_t>("a value's kind"));
    SP_ASSIGN(std::string text, ValueText(kind, 0));
    if (name == "general.alignment") {
      const uint64_t given = std::strtoull(text.c_str(), nullptr, 10);
      if (!std::has_single_bit(given)) return Wrong("an alignment that is a power of two", text);
      alignment_ = given;
    }
    if (name == "split.no") part_ = std::strtoull(text.c_str(), nullptr, 10);
    if (name == "split.count") parts_ = std::strtoull(text.c_str(), nullptr, 10);
    checkpoint_.text_bytes += text.size();
    checkpoint_.values.push_back({std::move(name), std::move(text)});
    return Ok();
  }

  Status ReadTensor() {
    SP_ASSIGN(const std::string name, Text("a tensor's name"));
    SP_ASSIGN(const auto dims, Number<uint32_t>("a tensor's dims"));
    if (dims > kDimsMax)
      return Wrong(fmt::format("at most {} dims", kDimsMax), fmt::format("{}", dims));
    std::vector<int64_t> shape;
    for (uint32_t i = 0; i < dims; ++i) {
      SP_ASSIGN(const auto size, Number<int64_t>("a tensor's size"));
      shape.insert(shape.begin(), size);  // it has the fastest dim first
    }
    SP_ASSIGN(const auto id, Number<uint32_t>("a tensor's type"));
    SP_ASSIGN(const auto offset, Number<uint64_t>("a tensor's offset"));
    const auto type = std::find_if(Types().begin(), Types().end(),
                                   [&](const TensorType& one) { return one.id == id; });
    if (type == Types().end()) {
      return Unsupported(fmt::format("{}: tensor {}: type {} of ggml, which is not known",
                                     Printable(path_), Quote(name), id));
    }
    const auto row = shape.empty() ? 1 : static_cast<uint64_t>(shape.back());
    const auto elements = oracle::CheckedElements(shape.data(), shape.size());
    if (!elements || *elements > kElementsMax || row % type->block_elements != 0) {
      return Wrong(fmt::format("sizes of {} in blocks of {}", type->name, type->block_elements),
                   fmt::format("[{}]", fmt::join(shape, ", ")));
    }
    if (!type->IsPlain()) {
      if (shape.empty()) shape.push_back(0);
      shape.back() = static_cast<int64_t>(row / type->block_elements * type->block_bytes);
      checkpoint_.values.push_back({name + ".type", text::PythonText(type->name)});
    }
    Chunk chunk{.offsets = std::vector<int64_t>(shape.size()),
                .sizes = shape,
                .strides = RowMajorStrides(shape),
                .file_offset = offset};
    StoredTensor tensor{name, type->IsPlain() ? type->dtype : "U8", shape, {chunk}};
    if (!type->scales.empty()) tensor.scales = {type->block_bytes, type->dtype, type->scales};
    checkpoint_.tensors.push_back(std::move(tensor));
    return Ok();
  }

  /// The data begin behind all of this; what is not there, or is another tensor's too, is damage.
  Status Place() {
    const uint64_t start = (at_ + alignment_ - 1) & ~(alignment_ - 1);
    std::vector<StoredTensor>& tensors = checkpoint_.tensors;
    std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
      return a.chunks[0].file_offset < b.chunks[0].file_offset;
    });
    std::vector<StoredTensor> kept;
    uint64_t end = 0;
    for (StoredTensor& tensor : tensors) {
      uint64_t& offset = tensor.chunks[0].file_offset;
      const bool is_there = start <= file_->size() && offset <= file_->size() - start &&
                            tensor.Bytes() <= file_->size() - start - offset;
      const std::string found = fmt::format("bytes {} to {}", offset, offset + tensor.Bytes());
      const auto wrong = [&](const std::string& expected) {
        return oracle::Note(
            BadInput(fmt::format("{}: tensor {}: expected {}, found {}", Printable(path_),
                                 Quote(tensor.name), expected, found)),
            damage_);
      };
      if (!is_there) {
        SP_TRY(wrong("its bytes within the file"));
        continue;
      }
      if (offset < end || offset % alignment_ != 0) {
        SP_TRY(wrong(
            fmt::format("bytes of its own from {} on, at a multiple of {}", end, alignment_)));
        continue;
      }
      end = offset + tensor.Bytes();
      offset += start;
      kept.push_back(std::move(tensor));
    }
    tensors = std::move(kept);
    return Ok();
  }

  const std::string& path_;
  std::shared_ptr<const oracle::InputFile> file_;
  Damage* damage_;
  StoredCheckpoint checkpoint_;
  uint64_t at_ = 0;
  std::vector<char> window_;
  uint64_t window_start_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
  uint64_t part_ = 0;  ///< from 0 on, as llama.cpp counts the files that it splits a model into
  uint64_t parts_ = 1;
};

}  // namespace
}  // namespace gguf

Result<StoredCheckpoint> OpenGguf(const std::string& path, Damage* damage) {
  SP_ASSIGN(auto file, oracle::InputFile::Open(path));
  return gguf::Reader(path, std::move(file), damage).Run();
}

}  // namespace shardproof::formats
