// What a pickle would have Python import and call: looked up, and made plain data of.
#include <fmt/format.h>

#include "src/pickle/pickle_machine.h"
#include "src/text/quote.h"

namespace shardproof::pickle {

using text::Quote;
using Kind = PickleValue::Kind;

Status PickleMachine::PushName(std::string_view module, std::string_view name) {
  // Protocol 2 spells Python 3's builtins as Python 2 did: one name for both.
  const bool is_old = module == "__builtin__";
  const std::string_view known_module = is_old ? "builtins" : module;
  const std::string_view known_name = !is_old            ? name
                                      : name == "long"   ? "int"
                                      : name == "xrange" ? "range"
                                                         : name;
  const bool is_unknown = FindPickleName(known_module, known_name) == PickleCall::kUnknown;
  const bool is_refused =
      is_unknown && (unknown_ == UnknownNames::kRefuse || MayRunPrograms(known_module, known_name));
  if (is_refused) {
    // It may be a user's class, and nothing worse.
    const std::string found =
        Quote(fmt::format("{}.{}", module, name)) + ", which is neither imported nor called";
    return Unsupported(Wrong("a name that checkpoints need", found).message);
  }
  SP_TRY(PushText(Kind::kName, Keep(fmt::format("{}.{}", known_module, known_name))));
  stack_.back()->is_opaque = is_unknown;
  if (is_unknown) pickle_.opaque_.emplace(stack_.back()->text, 0);
  return Ok();
}

Result<PickleCall> PickleMachine::CallOf(const PickleValue& callee) {
  if (callee.kind != Kind::kName) return Wrong("a name to call", Describe(callee));
  const size_t dot = callee.text.rfind('.');
  return FindPickleName(callee.text.substr(0, dot), callee.text.substr(dot + 1));
}

/// What an opaque name is called with, or what it made: kept, under the same name.
Status PickleMachine::PushOpaque(const PickleValue& callee, const PickleValue& arguments) {
  SP_TRY(PushItems(Kind::kObject, arguments.items));
  stack_.back()->text = callee.text;
  stack_.back()->is_opaque = true;
  ++pickle_.opaque_[std::string(callee.text)];
  return Ok();
}

Status PickleMachine::Call(const PickleValue& callee, const PickleValue& arguments) {
  if (callee.is_opaque && arguments.Is(Kind::kTuple)) return PushOpaque(callee, arguments);
  SP_ASSIGN(const PickleCall call, CallOf(callee));
  if (arguments.kind != Kind::kTuple) return Wrong("a tuple of arguments", Describe(arguments));
  const auto& given = arguments.items;
  const auto refuse = [&](const char* expected) -> Status {
    return Wrong(fmt::format("{} to {}", expected, callee.text), Describe(arguments));
  };
  switch (call) {
    case PickleCall::kObject: {
      SP_TRY(PushItems(Kind::kObject, given));
      stack_.back()->text = callee.text;
      return Ok();
    }
    case PickleCall::kTuple:
    case PickleCall::kSet: {
      if (given.size() > 1) return refuse("one iterable");
      const Kind kind = call == PickleCall::kTuple ? Kind::kTuple : Kind::kSet;
      if (given.empty()) return PushItems(kind, {});
      if (!given[0]->Is(Kind::kTuple) && !given[0]->Is(Kind::kList)) return refuse("one iterable");
      return PushItems(kind, given[0]->items);
    }
    case PickleCall::kDict:
      return PushDict(callee, given);
    case PickleCall::kEncode:
      return PushEncoded(arguments);
    case PickleCall::kMember: {
      if (given.size() != 2 || !given[0]->Is(Kind::kName) || !given[1]->Is(Kind::kText)) {
        return refuse("a name of this table and a member's name");
      }
      SP_TRY(PushText(Kind::kName, Keep(fmt::format("{}.{}", given[0]->text, given[1]->text))));
      stack_.back()->is_opaque = given[0]->is_opaque;
      return Ok();
    }
    case PickleCall::kName:
    case PickleCall::kUnknown:
      break;
  }
  return Wrong("a name that may be called", Quote(callee.text));
}

Status PickleMachine::PushDict(const PickleValue& callee,
                               const std::vector<const PickleValue*>& given) {
  std::vector<const PickleValue*> items;
  const auto wrong = [&](const PickleValue& found) {
    return Wrong(fmt::format("pairs to {}", callee.text), Describe(found));
  };
  // A defaultdict begins with what makes its values.
  const bool has_factory = callee.text == "collections.defaultdict" && !given.empty();
  const size_t first = has_factory ? 1 : 0;
  if (given.size() > first + 1) return wrong(*given.back());
  if (given.size() == first) return PushItems(Kind::kDict, {});
  const PickleValue& content = *given[first];
  if (content.Is(Kind::kDict)) return PushItems(Kind::kDict, content.items);
  if (!content.Is(Kind::kList) && !content.Is(Kind::kTuple)) return wrong(content);
  for (const PickleValue* pair : content.items) {
    const bool is_pair =
        (pair->Is(Kind::kList) || pair->Is(Kind::kTuple)) && pair->items.size() == 2;
    if (!is_pair) return wrong(*pair);
    items.insert(items.end(), pair->items.begin(), pair->items.end());
  }
  return PushItems(Kind::kDict, std::move(items));
}

Status PickleMachine::Build(const PickleValue& state) {
  if (stack_.size() <= Floor()) return Wrong("an object to give its state", "an empty stack");
  PickleValue& object = *stack_.back();
  const bool is_dict = object.Is(Kind::kDict) && state.Is(Kind::kDict);  // its attributes
  // A tensor takes a state too, and would be another one then.
  const bool is_tensor = object.text.starts_with("torch._utils.");
  if ((!object.Is(Kind::kObject) || is_tensor) && !is_dict) {
    return Wrong("an object to give its state", Describe(object));
  }
  if (object.state != nullptr) return Wrong("one state of an object", "two of " + Describe(object));
  object.state = &state;
  return Ok();
}

Status PickleMachine::PushEncoded(const PickleValue& arguments) {
  const auto& given = arguments.items;
  const bool fits = given.size() == 2 && given[0]->Is(Kind::kText) && given[1]->Is(Kind::kText) &&
                    given[1]->text == "latin1";
  if (!fits) return Wrong("a text and 'latin1' to _codecs.encode", Describe(arguments));
  std::string bytes;
  const std::string_view text = given[0]->text;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto first = static_cast<uint8_t>(text[i]);
    if (first < 0x80) {
      bytes.push_back(text[i]);
      continue;
    }
    const bool pair = (first == 0xc2 || first == 0xc3) && i + 1 < text.size() &&
                      (static_cast<uint8_t>(text[i + 1]) & 0xc0) == 0x80;
    if (!pair) return Wrong("text of code points below 256", Quote(text.substr(0, 40)));
    bytes.push_back(static_cast<char>((first << 6) | (static_cast<uint8_t>(text[++i]) & 0x3f)));
  }
  return PushText(Kind::kBytes, Keep(std::move(bytes)));
}

}  // namespace shardproof::pickle
