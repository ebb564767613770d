#include "verify/dcp_forms/pickle_forms.h"

#include <cstring>
#include <map>

#include "src/core/check.h"

namespace shardproof::dcp_forms {
namespace {

using Kind = Py::Kind;

/// \source Python's pickletools: the opcodes and what they take.
class PickleForm {
 public:
  PickleForm(Reads reads, Draws& draws)
      : draws_(draws),
        is_any_(reads == Reads::kPython),
        protocol_(static_cast<int>(is_any_ ? 2 + draws.Below(4) : 2)),
        remembers_(draws.Below(4) != 0),
        detours_(is_any_ && draws.Below(4) == 0) {}

  std::string Whole(const Py& value) {
    Put(value);
    bytes_ += '.';
    std::string head = {'\x80', static_cast<char>(protocol_)};
    if (protocol_ >= 4 && draws_.Flag()) head += "\x95" + Number(bytes_.size(), 8);
    return head + bytes_;
  }

 private:
  static std::string Number(uint64_t value, size_t width) {
    std::string raw(width, '\0');
    std::memcpy(raw.data(), &value, width);  // little-endian, as this machine is
    return raw;
  }

  void Put(const Py& value) {
    if (detours_ && draws_.Below(8) == 0) bytes_ += draws_.Flag() ? "N0" : "(N1";  // and dropped
    switch (value.kind) {
      case Kind::kNone:
        bytes_ += 'N';
        return;
      case Kind::kBool:
        bytes_ += value.integer != 0 ? '\x88' : '\x89';
        return;
      case Kind::kInteger:
        return PutInteger(value.integer);
      case Kind::kText:
        return PutText(value.text);
      case Kind::kName:
        return PutName(value.text);
      case Kind::kTuple:
        return PutTuple(value.items);
      case Kind::kList:
      case Kind::kDict:
        return PutContainer(value.kind == Kind::kDict, value.items);
      case Kind::kCall:
        Put(value.items[0]);
        PutTuple({value.items.begin() + 1, value.items.end()});
        bytes_ += 'R';
        return Remember("");
      case Kind::kObject:
        return PutObject(value);
      case Kind::kPersistent:
        Put(value.items[0]);
        bytes_ += 'Q';
        return;
    }
  }

  void PutInteger(int64_t value) {
    const uint64_t way = draws_.Below(4);
    if (way == 0) return PutLong(value);
    if (value >= 0 && value < 256 && way > 1)
      bytes_ += "K" + Number(static_cast<uint64_t>(value), 1);
    else if (value >= 0 && value < 65536 && way > 2)
      bytes_ += "M" + Number(static_cast<uint64_t>(value), 2);
    else if (value >= INT32_MIN && value <= INT32_MAX)
      bytes_ += "J" + Number(static_cast<uint64_t>(value), 4);
    else
      PutLong(value);
  }

  /// As few bytes as tell its sign too; none of 0.
  void PutLong(int64_t value) {
    size_t width = 8;
    const auto fits = [&](size_t bytes) {
      const int64_t high = int64_t{1} << (8 * bytes - 1);
      return value >= -high && value < high;
    };
    while (width > 1 && fits(width - 1)) --width;
    if (value == 0) width = 0;
    bytes_ += !is_any_ || draws_.Flag() ? "\x8a" + Number(width, 1) : "\x8b" + Number(width, 4);
    bytes_ += Number(static_cast<uint64_t>(value), 8).substr(0, width);
  }

  void PutText(const std::string& text) {
    if (Recall(text)) return;
    if (protocol_ >= 4 && text.size() < 256 && draws_.Flag())
      bytes_ += "\x8c" + Number(text.size(), 1);
    else if (protocol_ >= 4 && draws_.Flag())
      bytes_ += "\x8d" + Number(text.size(), 8);
    else
      bytes_ += "X" + Number(text.size(), 4);
    bytes_ += text;
    Remember(text);
  }

  void PutName(const std::string& text) {
    if (Recall(text)) return;
    const size_t line = text.find('\n');
    if (protocol_ >= 4 && draws_.Flag()) {
      PutText(text.substr(0, line));
      PutText(text.substr(line + 1));
      bytes_ += '\x93';
    } else {
      bytes_ += "c" + text + "\n";
    }
    Remember(text);
  }

  void PutTuple(const std::vector<Py>& items) {
    const bool is_short = items.size() <= 3 && draws_.Below(4) != 0;
    if (!is_short) bytes_ += '(';
    for (const Py& item : items) Put(item);
    constexpr std::string_view kShort = ")\x85\x86\x87";
    bytes_ += is_short ? kShort[items.size()] : 't';
    Remember("");
  }

  void PutContainer(bool is_dict, const std::vector<Py>& items) {
    const size_t step = is_dict ? 2 : 1;
    const uint64_t way = draws_.Below(4);
    if (is_any_ && way == 0) {
      bytes_ += '(';
      for (const Py& item : items) Put(item);
      bytes_ += is_dict ? 'd' : 'l';
      return Remember("");
    }
    bytes_ += is_dict ? '}' : ']';
    Remember("");
    // By ones, or in stretches, as CPython's pickler does after a thousand.
    for (size_t i = 0; i < items.size();) {
      if (way == 1) {
        for (size_t part = 0; part < step; ++part) Put(items[i++]);
        bytes_ += is_dict ? 's' : 'a';
        continue;
      }
      bytes_ += '(';
      const size_t end = std::min(items.size(), i + step * (1 + draws_.Below(6)));
      while (i < end) Put(items[i++]);
      bytes_ += is_dict ? 'u' : 'e';
    }
  }

  void PutObject(const Py& value) {
    Put(value.items[0]);
    PutTuple({});
    bytes_ += protocol_ >= 4 && draws_.Below(4) == 0 ? "}\x92" : "\x81";  // no arguments by name
    Remember("");
    Put(value.items[1]);
    bytes_ += 'b';
  }

  /// Takes what was written before from the memo, if it is there.
  bool Recall(const std::string& text) {
    const auto found = memo_.find(text);
    if (found == memo_.end() || draws_.Below(8) == 0) return false;
    const bool is_long = found->second > 255 || draws_.Below(4) == 0;
    bytes_ += is_long ? "j" + Number(found->second, 4) : "h" + Number(found->second, 1);
    return true;
  }

  /// Gives what was written last a place in the memo, under which it is found again by its text.
  void Remember(const std::string& text) {
    if (!remembers_) return;
    if (protocol_ >= 4 && draws_.Flag())
      bytes_ += '\x94';
    else if (count_ > 255 || draws_.Below(4) == 0)
      bytes_ += "r" + Number(count_, 4);
    else
      bytes_ += "q" + Number(count_, 1);
    if (!text.empty()) memo_[text] = count_;
    ++count_;
  }

  Draws& draws_;
  const bool is_any_;
  const int protocol_;
  const bool remembers_;
  const bool detours_;
  std::string bytes_;
  std::map<std::string, uint64_t> memo_;
  uint64_t count_ = 0;
};

}  // namespace

Py Py::Integers(const std::vector<int64_t>& values) {
  std::vector<Py> items;
  for (const int64_t value : values) items.push_back(Integer(value));
  return Of(Kind::kTuple, std::move(items));
}

Py Py::Size(const std::vector<int64_t>& values) {
  return Of(Kind::kCall, {Name("torch", "Size"), Integers(values)});
}

Py& Py::At(const std::string& key) {
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].text == key) return items[i + 1];
  }
  SP_CHECK(false);
}

std::string PickleOf(const Py& value, Reads reads, Draws& draws) {
  return PickleForm(reads, draws).Whole(value);
}

}  // namespace shardproof::dcp_forms
