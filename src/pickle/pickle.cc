#include "src/pickle/pickle.h"

#include <fmt/format.h>

#include <bit>

#include "src/pickle/pickle_machine.h"
#include "src/text/quote.h"

namespace shardproof::pickle {

using text::Printable;
using text::Quote;
using Kind = PickleValue::Kind;

namespace {

constexpr size_t kValuesMax = size_t{16} << 20;
constexpr int kHighestProtocol = 5;

// The opcodes of CPython's Lib/pickletools.py that torch, NumPy and Python write in protocols 2
// to 5. Those of protocol 0, whose arguments are text, have rules of their own (I010 is 8) and are
// not needed.
enum Op : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kDict = 'd',
  kEmptyDict = '}',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kList = 'l',
  kEmptyList = ']',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kBinFloat = 'G',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

}  // namespace

Result<Pickle> PickleMachine::Run() {
  if (bytes_.size() < 2 || static_cast<uint8_t>(bytes_[0]) != kProto) {
    return Wrong(
        "a pickle of protocol 2 to 5, which begins with 0x80",
        bytes_.empty() ? "nothing" : fmt::format("0x{:02x}", static_cast<uint8_t>(bytes_[0])));
  }
  while (pickle_.root_ == nullptr) {
    op_at_ = at_;
    if (at_ == bytes_.size()) return Wrong("a STOP", "the end");
    SP_TRY(Step(static_cast<uint8_t>(bytes_[at_++])));
    if (pickle_.values_.size() > kValuesMax) {
      return Wrong(fmt::format("at most {} values", kValuesMax), "more");
    }
  }
  if (at_ != bytes_.size()) {
    op_at_ = at_;
    return Wrong("the end after STOP", fmt::format("{} more bytes", bytes_.size() - at_));
  }
  return std::move(pickle_);
}

Status PickleMachine::Step(uint8_t op) {
  switch (op) {
    case kProto: {
      SP_ASSIGN(const uint64_t protocol, TakeNumber(1));
      if (protocol < 2 || protocol > kHighestProtocol) {
        return Wrong("protocol 2 to 5", fmt::format("{}", protocol));
      }
      return Ok();
    }
    case kFrame: {
      SP_ASSIGN(const uint64_t length, TakeNumber(8));
      if (length > bytes_.size() - at_) {
        return Wrong(fmt::format("a frame of at most {} bytes", bytes_.size() - at_),
                     fmt::format("{}", length));
      }
      return Ok();
    }
    case kStop: {
      if (!marks_.empty() || stack_.size() != 1) {
        return Wrong("one value on the stack at STOP", fmt::format("{}", stack_.size()));
      }
      pickle_.root_ = stack_.back();
      return Ok();
    }
    case kMark:
      marks_.push_back(stack_.size());
      return Ok();
    case kPop: {
      // CPython's POP takes a mark off if there is nothing above it.
      if (!marks_.empty() && marks_.back() == stack_.size()) {
        marks_.pop_back();
        return Ok();
      }
      SP_TRY(Pop());
      return Ok();
    }
    case kPopMark:
      SP_TRY(PopToMark());
      return Ok();
    case kDup: {
      if (stack_.size() <= Floor()) return Wrong("a value to double", "an empty stack");
      return Push(stack_.back());
    }
    default:
      return StepOfValues(op);
  }
}

Status PickleMachine::StepOfValues(uint8_t op) {
  switch (op) {
    case kNone:
      return PushCommon(none_, Kind::kNone);
    case kNewTrue:
      return PushCommon(true_, Kind::kBool, 1);
    case kNewFalse:
      return PushCommon(false_, Kind::kBool, 0);
    case kBinInt: {
      SP_ASSIGN(const uint64_t bits, TakeNumber(4));
      return PushInteger(static_cast<int32_t>(bits));
    }
    case kBinInt1:
    case kBinInt2: {
      SP_ASSIGN(const uint64_t bits, TakeNumber(op == kBinInt1 ? 1 : 2));
      return PushInteger(static_cast<int64_t>(bits));
    }
    case kLong1:
    case kLong4: {
      SP_ASSIGN(const std::string_view raw, TakeCounted(op == kLong1 ? 1 : 4));
      return PushLong(raw);
    }
    case kBinFloat: {
      SP_ASSIGN(const uint64_t bits, TakeNumber(8));
      return PushFloat(std::bit_cast<double>(__builtin_bswap64(bits)));
    }
    case kShortBinUnicode:
      return PushCounted(Kind::kText, 1);
    case kBinUnicode:
      return PushCounted(Kind::kText, 4);
    case kBinUnicode8:
      return PushCounted(Kind::kText, 8);
    case kShortBinString:
      return PushCounted(Kind::kBytes, 1);
    case kBinString:
      return PushCounted(Kind::kBytes, 4);
    case kShortBinBytes:
      return PushCounted(Kind::kBytes, 1);
    case kBinBytes:
      return PushCounted(Kind::kBytes, 4);
    case kBinBytes8:
    case kByteArray8:
      return PushCounted(Kind::kBytes, 8);
    default:
      return StepOfContainers(op);
  }
}

Status PickleMachine::StepOfContainers(uint8_t op) {
  switch (op) {
    case kEmptyTuple:
      return PushCommon(empty_, Kind::kTuple);
    case kTuple1:
      return PushTuple(1);
    case kTuple2:
      return PushTuple(2);
    case kTuple3:
      return PushTuple(3);
    case kEmptyList:
      return PushItems(Kind::kList, {});
    case kEmptyDict:
      return PushItems(Kind::kDict, {});
    case kEmptySet:
      return PushItems(Kind::kSet, {});
    case kTuple:
    case kList:
    case kDict:
    case kFrozenSet: {
      SP_ASSIGN(auto items, PopToMark());
      const Kind kind = op == kTuple  ? Kind::kTuple
                        : op == kList ? Kind::kList
                        : op == kDict ? Kind::kDict
                                      : Kind::kSet;
      return PushItems(kind, std::move(items));
    }
    case kAppend:
      return ExtendByOne(false);
    case kSetItem:
      return ExtendByOne(true);
    case kAppends:
    case kAddItems:
    case kSetItems: {
      SP_ASSIGN(auto items, PopToMark());
      return Extend(std::move(items), op == kSetItems);
    }
    default:
      return StepOfNames(op);
  }
}

Status PickleMachine::StepOfNames(uint8_t op) {
  switch (op) {
    case kBinPut:
    case kLongBinPut: {
      SP_ASSIGN(const uint64_t index, TakeNumber(op == kBinPut ? 1 : 4));
      return Put(index);
    }
    case kBinGet:
    case kLongBinGet: {
      SP_ASSIGN(const uint64_t index, TakeNumber(op == kBinGet ? 1 : 4));
      return Get(index);
    }
    case kMemoize:
      return Put(memo_.size());
    case kGlobal: {
      SP_ASSIGN(const std::string_view module, TakeLine());
      SP_ASSIGN(const std::string_view name, TakeLine());
      return PushName(module, name);
    }
    case kStackGlobal: {
      SP_ASSIGN(const PickleValue* name, Pop());
      SP_ASSIGN(const PickleValue* module, Pop());
      if (!module->Is(Kind::kText) || !name->Is(Kind::kText)) {
        return Wrong("the texts of a module and a name",
                     Describe(*module) + " and " + Describe(*name));
      }
      return PushName(module->text, name->text);
    }
    case kReduce:
    case kNewObj: {
      SP_ASSIGN(const PickleValue* arguments, Pop());
      SP_ASSIGN(const PickleValue* callee, Pop());
      return Call(*callee, *arguments);
    }
    case kNewObjEx: {
      SP_ASSIGN(const PickleValue* options, Pop());
      SP_ASSIGN(const PickleValue* arguments, Pop());
      SP_ASSIGN(const PickleValue* callee, Pop());
      if (callee->is_opaque && options->Is(Kind::kDict)) {
        SP_TRY(Call(*callee, *arguments));
        PickleValue& made = *stack_.back();
        made.items.insert(made.items.end(), options->items.begin(), options->items.end());
        return Ok();
      }
      if (!options->Is(Kind::kDict) || !options->items.empty()) {
        return Wrong("no arguments by name", Describe(*options));
      }
      return Call(*callee, *arguments);
    }
    case kBuild: {
      SP_ASSIGN(const PickleValue* state, Pop());
      return Build(*state);
    }
    case kBinPersId: {
      SP_ASSIGN(const PickleValue* id, Pop());
      return PushItems(Kind::kPersistent, {id});
    }
    default:
      return Wrong("an opcode that checkpoints need", fmt::format("0x{:02x}", op));
  }
}

Result<Pickle> ReadPickle(std::string bytes, const std::string& where, UnknownNames unknown) {
  return PickleMachine(std::move(bytes), where, unknown).Run();
}

const PickleValue* PickleValue::At(std::string_view key) const {
  const PickleValue* dict = Is(Kind::kDict) ? this : state;
  if (dict == nullptr || !dict->Is(Kind::kDict)) return nullptr;
  const PickleValue* found = nullptr;  // the last one: a dict keeps it
  for (size_t i = 0; i + 1 < dict->items.size(); i += 2) {
    if (dict->items[i]->Is(Kind::kText) && dict->items[i]->text == key) found = dict->items[i + 1];
  }
  return found;
}

std::string Describe(const PickleValue& value) {
  switch (value.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.integer != 0 ? "True" : "False";
    case Kind::kInteger:
      return value.is_big ? "an int of more than 64 bits" : fmt::format("{}", value.integer);
    case Kind::kFloat:
      return fmt::format("{}", value.number);
    case Kind::kText:
      return "text " + Quote(value.text);
    case Kind::kBytes:
      return fmt::format("{} bytes", value.text.size());
    case Kind::kTuple:
      return fmt::format("a tuple of {}", value.items.size());
    case Kind::kList:
      return fmt::format("a list of {}", value.items.size());
    case Kind::kSet:
      return fmt::format("a set of {}", value.items.size());
    case Kind::kDict:
      return fmt::format("a dict of {}", value.items.size() / 2);
    case Kind::kName:
    case Kind::kObject:
      return Printable(value.text);
    case Kind::kPersistent:
      return "a persistent id";
  }
  return "";
}

}  // namespace shardproof::pickle
