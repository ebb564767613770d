// A pickled value in Python's notation.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/pickle/pickle.h"
#include "src/text/python_notation.h"

namespace shardproof::pickle {
namespace {

using Kind = PickleValue::Kind;

constexpr int kDepthMax = 100;
constexpr int64_t kPartsMax = 16'000'000;
constexpr size_t kBytesMax = 64u << 20;

class Writer {
 public:
  Result<std::string> Write(const PickleValue& value) {
    SP_TRY(Add(value, 0));
    return std::move(out_);
  }

 private:
  Status Add(const PickleValue& value, int depth) {
    if (depth > kDepthMax) return BadInput(fmt::format("nests deeper than {}", kDepthMax));
    if (++parts_ > kPartsMax) return BadInput(fmt::format("has more than {} parts", kPartsMax));
    if (out_.size() > kBytesMax) {
      return BadInput(fmt::format("has more than {} bytes of text", kBytesMax));
    }
    switch (value.kind) {
      case Kind::kNone:
        out_ += "None";
        return Ok();
      case Kind::kBool:
        out_ += value.integer != 0 ? "True" : "False";
        return Ok();
      case Kind::kInteger:
        AddInteger(value);
        return Ok();
      case Kind::kFloat:
        out_ += text::PythonFloat(value.number);
        return Ok();
      case Kind::kText:
        out_ += text::PythonText(value.text);
        return Ok();
      case Kind::kBytes:
        out_ += text::PythonText(value.text, true);
        return Ok();
      case Kind::kTuple:
        return AddItems("(", value, value.items.size() == 1 ? ",)" : ")", depth);
      case Kind::kList:
        return AddItems("[", value, "]", depth);
      case Kind::kSet:
        return AddSet(value, depth);
      case Kind::kDict:
        return AddDict(value, depth);
      case Kind::kName:
        out_ += value.text;
        return Ok();
      case Kind::kPersistent:
        return AddItems("persistent(", value, ")", depth);
      case Kind::kObject:
        return AddObject(value, depth);
    }
    return Ok();
  }

  Status AddObject(const PickleValue& value, int depth) {
    out_ += value.text;
    // An object of a class that is not known may well lead back to itself.
    if (value.is_opaque && std::find(within_.begin(), within_.end(), &value) != within_.end()) {
      out_ += "(...)";
      return Ok();
    }
    if (value.is_opaque) within_.push_back(&value);
    SP_TRY(AddItems("(", value, ")", depth));
    if (value.state != nullptr) {
      out_ += " with ";
      SP_TRY(Add(*value.state, depth + 1));
    }
    if (value.is_opaque) within_.pop_back();
    return Ok();
  }

  Status AddItems(const char* open, const PickleValue& value, const char* close, int depth) {
    out_ += open;
    for (size_t i = 0; i < value.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      SP_TRY(Add(*value.items[i], depth + 1));
    }
    out_ += close;
    return Ok();
  }

  /// In the order of their texts: a set has none of its own, and Python's changes from run to run.
  Status AddSet(const PickleValue& value, int depth) {
    std::vector<std::string> texts;
    const std::string before = std::move(out_);
    size_t bytes = before.size();
    for (const PickleValue* item : value.items) {
      out_.clear();
      SP_TRY(Add(*item, depth + 1));
      bytes += out_.size();
      if (bytes > kBytesMax)
        return BadInput(fmt::format("has more than {} bytes of text", kBytesMax));
      texts.push_back(out_);
    }
    std::sort(texts.begin(), texts.end());
    out_ = before + fmt::format("{{{}}}", fmt::join(texts, ", "));
    return Ok();
  }

  Status AddDict(const PickleValue& value, int depth) {
    out_ += "{";
    for (size_t i = 0; i + 1 < value.items.size(); i += 2) {
      if (i > 0) out_ += ", ";
      SP_TRY(Add(*value.items[i], depth + 1));
      out_ += ": ";
      SP_TRY(Add(*value.items[i + 1], depth + 1));
    }
    out_ += "}";
    return Ok();
  }

  void AddInteger(const PickleValue& value) {
    if (!value.is_big) {
      out_ += fmt::format("{}", value.integer);
      return;
    }
    out_ += "0x";
    for (size_t i = value.text.size(); i-- > 0;) {
      out_ += fmt::format("{:02x}", static_cast<uint8_t>(value.text[i]));
    }
    out_ += fmt::format(" of {} bytes", value.text.size());
  }

  std::string out_;
  std::vector<const PickleValue*> within_;  ///< opaque objects that the value being written is in
  int64_t parts_ = 0;
};

}  // namespace

Result<std::string> TextOf(const PickleValue& value) { return Writer().Write(value); }

}  // namespace shardproof::pickle
