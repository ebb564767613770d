// The machine that reads a pickle: a stack, marks on it and a memo, without anything that acts.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/pickle/pickle.h"

namespace shardproof::pickle {

class PickleMachine {
 public:
  using Kind = PickleValue::Kind;

  PickleMachine(std::string bytes, const std::string& where, UnknownNames unknown)
      : where_(where), unknown_(unknown) {
    pickle_.bytes_ = std::make_unique<const std::string>(std::move(bytes));
    bytes_ = *pickle_.bytes_;
  }

  /// The whole pickle; once.
  Result<Pickle> Run();

 private:
  Error Wrong(const std::string& expected, const std::string& found) const;

  // What the bytes hold.
  Result<std::string_view> Take(uint64_t length);
  /// Little-endian, of `width` bytes.
  Result<uint64_t> TakeNumber(int width);
  /// Bytes after a length of `width` bytes.
  Result<std::string_view> TakeCounted(int width);
  Result<std::string_view> TakeLine();

  // What the stack holds.
  PickleValue* Make(Kind kind) {
    PickleValue& made = pickle_.values_.emplace_back();
    made.kind = kind;
    return &made;
  }
  std::string_view Keep(std::string text) { return pickle_.texts_.emplace_back(std::move(text)); }
  Status Push(PickleValue* value) {
    stack_.push_back(value);
    return Ok();
  }
  Status PushInteger(int64_t number);
  Status PushText(Kind kind, std::string_view text);
  /// One value for every use: a pickle of a million of them takes no memory.
  Status PushCommon(PickleValue*& common, Kind kind, int64_t integer = 0);
  size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Result<PickleValue*> Pop();
  Result<std::vector<const PickleValue*>> PopToMark();
  Status PushItems(Kind kind, std::vector<const PickleValue*> items);
  Status PushTuple(size_t count);
  /// Puts items into the container under them: a list or set by ones, a dict by twos. Items of an
  /// object (a subclass of list or dict) are kept with its arguments.
  Status Extend(std::vector<const PickleValue*> items, bool pairs);
  Status ExtendByOne(bool pair);
  Status Put(uint64_t index);
  Status Get(uint64_t index);

  // What would be a call.
  Status PushName(std::string_view module, std::string_view name);
  Result<PickleCall> CallOf(const PickleValue& callee);
  Status Call(const PickleValue& callee, const PickleValue& arguments);
  Status PushOpaque(const PickleValue& callee, const PickleValue& arguments);
  Status PushDict(const PickleValue& callee, const std::vector<const PickleValue*>& given);
  /// Gives the object on the stack its state.
  Status Build(const PickleValue& state);
  /// Protocol 2 has no bytes: they are text of code points below 256, to be encoded in Latin-1.
  Status PushEncoded(const PickleValue& arguments);

  // Numbers.
  Status PushLong(std::string_view raw);
  Status PushFloat(double number);
  Status PushCounted(Kind kind, int width);

  /// What one opcode does. Each of these knows the opcodes of one kind, and passes on the others.
  Status Step(uint8_t op);  ///< the stream itself, the stack and its marks
  Status StepOfValues(uint8_t op);
  Status StepOfContainers(uint8_t op);
  Status StepOfNames(uint8_t op);  ///< and of calls and the memo

  const std::string& where_;
  const UnknownNames unknown_;
  Pickle pickle_;
  std::string_view bytes_;
  size_t at_ = 0;
  size_t op_at_ = 0;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleValue*> memo_;
  size_t item_count_ = 0;
  PickleValue* none_ = nullptr;
  PickleValue* true_ = nullptr;
  PickleValue* false_ = nullptr;
  PickleValue* empty_ = nullptr;
};

}  // namespace shardproof::pickle
