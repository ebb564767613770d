// What a pickle's bytes hold, and what its stack does with it.
#include <fmt/format.h>
#include <simdjson.h>

#include <bit>
#include <cstring>

#include "src/pickle/pickle_machine.h"
#include "src/text/quote.h"

namespace shardproof::pickle {

using text::Printable;
using Kind = PickleValue::Kind;

namespace {

constexpr size_t kItemsMax = size_t{16} << 20;
constexpr size_t kLineBytesMax = 1 << 16;  // of opcodes whose argument ends with the line

}  // namespace

Error PickleMachine::Wrong(const std::string& expected, const std::string& found) const {
  return BadInput(fmt::format("{}: pickle, offset {}: expected {}, found {}", Printable(where_),
                              op_at_, expected, found));
}

Result<std::string_view> PickleMachine::Take(uint64_t length) {
  if (length > bytes_.size() - at_) {
    return Wrong(fmt::format("{} bytes of an argument", length),
                 fmt::format("{} to the end", bytes_.size() - at_));
  }
  const std::string_view taken = bytes_.substr(at_, length);
  at_ += length;
  return taken;
}

Result<uint64_t> PickleMachine::TakeNumber(int width) {
  SP_ASSIGN(const std::string_view raw, Take(static_cast<uint64_t>(width)));
  uint64_t number = 0;
  std::memcpy(&number, raw.data(), raw.size());  // little-endian, as this machine is
  return number;
}

Result<std::string_view> PickleMachine::TakeCounted(int width) {
  SP_ASSIGN(const uint64_t length, TakeNumber(width));
  return Take(length);
}

Result<std::string_view> PickleMachine::TakeLine() {
  const size_t end = bytes_.substr(at_, kLineBytesMax).find('\n');
  if (end == std::string_view::npos)
    return Wrong("an argument that ends with its line", "no end of it");
  const std::string_view line = bytes_.substr(at_, end);
  at_ += end + 1;
  return line;
}

Status PickleMachine::PushInteger(int64_t number) {
  PickleValue* made = Make(Kind::kInteger);
  made->integer = number;
  return Push(made);
}

Status PickleMachine::PushText(Kind kind, std::string_view text) {
  PickleValue* made = Make(kind);
  made->text = text;
  return Push(made);
}

Status PickleMachine::PushCommon(PickleValue*& common, Kind kind, int64_t integer) {
  if (common == nullptr) {
    common = Make(kind);
    common->integer = integer;
  }
  return Push(common);
}

Result<PickleValue*> PickleMachine::Pop() {
  if (stack_.size() <= Floor()) return Wrong("a value on the stack", "none above the last mark");
  PickleValue* value = stack_.back();
  stack_.pop_back();
  return value;
}

Result<std::vector<const PickleValue*>> PickleMachine::PopToMark() {
  if (marks_.empty()) return Wrong("a mark on the stack", "none");
  const auto begin = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
  std::vector<const PickleValue*> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

Status PickleMachine::PushItems(Kind kind, std::vector<const PickleValue*> items) {
  if (kind == Kind::kDict && items.size() % 2 != 0)
    return Wrong("a value to every key", "none to the last");
  // A call may copy the items of a tuple that the memo holds, again and again.
  item_count_ += items.size();
  if (item_count_ > kItemsMax) return Wrong(fmt::format("at most {} items", kItemsMax), "more");
  PickleValue* made = Make(kind);
  made->items = std::move(items);
  return Push(made);
}

Status PickleMachine::PushTuple(size_t count) {
  std::vector<const PickleValue*> items(count);
  for (size_t i = count; i-- > 0;) {
    SP_ASSIGN(items[i], Pop());
  }
  return PushItems(Kind::kTuple, std::move(items));
}

Status PickleMachine::Extend(std::vector<const PickleValue*> items, bool pairs) {
  if (stack_.size() <= Floor()) return Wrong("a container on the stack", "none");
  PickleValue* container = stack_.back();
  const Kind kind = container->kind;
  const bool fits = pairs ? kind == Kind::kDict : kind == Kind::kList || kind == Kind::kSet;
  // Of what is no list and no dict, these alone are filled so.
  const bool is_container = container->IsObject("collections.deque") ||
                            container->IsObject("collections.Counter") ||
                            (container->Is(Kind::kObject) && container->is_opaque);
  if (!fits && !is_container) {
    return Wrong(pairs ? "a dict to put items into" : "a list or set to put items into",
                 Describe(*container));
  }
  if (pairs && items.size() % 2 != 0) return Wrong("a value to every key", "none to the last");
  container->items.insert(container->items.end(), items.begin(), items.end());
  return Ok();
}

Status PickleMachine::ExtendByOne(bool pair) {
  std::vector<const PickleValue*> items(pair ? 2 : 1);
  for (size_t i = items.size(); i-- > 0;) {
    SP_ASSIGN(items[i], Pop());
  }
  return Extend(std::move(items), pair);
}

Status PickleMachine::Put(uint64_t index) {
  if (stack_.size() <= Floor()) return Wrong("a value to remember", "an empty stack");
  // CPython takes any index and makes room for all below it; no writer skips any.
  if (index > bytes_.size()) {
    return Wrong("a memo index below the pickle's length", fmt::format("{}", index));
  }
  memo_[index] = stack_.back();
  return Ok();
}

Status PickleMachine::Get(uint64_t index) {
  const auto found = memo_.find(index);
  if (found == memo_.end()) return Wrong(fmt::format("memo {} to be set", index), "it is not");
  return Push(found->second);
}

Status PickleMachine::PushLong(std::string_view raw) {
  if (raw.size() <= 8) {
    uint64_t bits = 0;
    std::memcpy(&bits, raw.data(), raw.size());
    const bool negative = !raw.empty() && (static_cast<uint8_t>(raw.back()) & 0x80) != 0;
    if (negative && raw.size() < 8) bits |= ~uint64_t{0} << (8 * raw.size());
    return PushInteger(static_cast<int64_t>(bits));
  }
  SP_TRY(PushText(Kind::kInteger, raw));
  stack_.back()->is_big = true;
  return Ok();
}

Status PickleMachine::PushFloat(double number) {
  PickleValue* made = Make(Kind::kFloat);
  made->number = number;
  return Push(made);
}

Status PickleMachine::PushCounted(Kind kind, int width) {
  SP_ASSIGN(const std::string_view text, TakeCounted(width));
  if (kind == Kind::kText && !simdjson::validate_utf8(text.data(), text.size())) {
    return Wrong("text in UTF-8", fmt::format("{} bytes that are none", text.size()));
  }
  return PushText(kind, text);
}

}  // namespace shardproof::pickle
