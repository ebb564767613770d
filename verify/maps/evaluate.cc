#include "verify/maps/evaluate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "verify/oracle/quote.h"

namespace shardproof::maps {
namespace {

using Kind = Expression::Kind;
using oracle::Quote;

constexpr int64_t kDimsMax = 64;
constexpr const char* kFunctions =
    "cat, stack, interleave, transpose, permute, reshape, pad, cast, bits, unpack_fp4, reciprocal, "
    "scaled, merged";

std::optional<int64_t> AsNumber(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Whether an argument is a tensor: the second one of a cast is a dtype.
bool IsTensor(const Expression& call, size_t argument) {
  return argument == 0 || (call.function != "cast" && call.function != "bits");
}

bool Joins(const Expression& expression) {
  return expression.kind == Kind::kCall &&
         (expression.function == "cat" || expression.function == "stack");
}

void AddCaptures(const Size& size, std::set<std::string>& captures) {
  if (size.kind == Size::Kind::kCapture) captures.insert(size.name);
  for (const Size& operand : size.operands) AddCaptures(operand, captures);
}

bool Agree(const Captures& some, const Captures& all) {
  return std::all_of(some.begin(), some.end(), [&](const auto& capture) {
    const auto known = all.find(capture.first);
    return known == all.end() || known->second == capture.second;
  });
}

Result<int64_t> Computed(char operation, int64_t left, int64_t right) {
  int64_t value = 0;
  bool fails = false;
  switch (operation) {
    case '+':
      fails = __builtin_add_overflow(left, right, &value);
      break;
    case '-':
      fails = __builtin_sub_overflow(left, right, &value);
      break;
    case '*':
      fails = __builtin_mul_overflow(left, right, &value);
      break;
    default:
      fails = right == 0 || left % right != 0;
      value = fails ? 0 : left / right;
      break;
  }
  if (!fails) return value;
  return BadInput(fmt::format("expected a whole number, found {} {} {}", left, operation, right));
}

Status CheckCall(const Expression& call, size_t least, size_t most,
                 const std::set<std::string>& options) {
  if (call.arguments.size() < least || call.arguments.size() > most) {
    return BadInput(
        fmt::format("expected {} arguments, found {}",
                    least == most ? std::to_string(least) : fmt::format("{} or more", least),
                    call.arguments.size()));
  }
  for (const auto& [name, option] : call.options) {
    if (options.count(name) > 0) continue;
    return BadInput(fmt::format(
        "expected the options {}, found {}",
        options.empty() ? "(none)" : fmt::format("{}", fmt::join(options, ", ")), Quote(name)));
  }
  return Ok();
}

}  // namespace

Result<int64_t> Sizes::Value(const Size& size, const Captures& captures,
                             const std::string& tensor) const {
  switch (size.kind) {
    case Size::Kind::kNumber:
      return size.number;
    case Size::Kind::kConfig:
      return config(size.name);
    case Size::Kind::kCapture: {
      const auto capture = captures.find(size.name);
      const auto number = capture == captures.end() ? std::nullopt : AsNumber(capture->second);
      if (number) return *number;
      return BadInput(
          fmt::format("expected {{{}}} to be a number, found {}", size.name,
                      capture == captures.end() ? "that no name has it" : Quote(capture->second)));
    }
    case Size::Kind::kVariable: {
      const auto defined = variables.find(size.name);
      if (defined != variables.end()) return defined->second;
      const auto follows = found.find({tensor, size.name});
      if (follows != found.end()) return follows->second;
      return BadInput(fmt::format("nothing says what {} is", Quote(size.name)));
    }
    case Size::Kind::kOperation:
      break;
  }
  SP_ASSIGN(const int64_t left, Value(size.operands[0], captures, tensor));
  SP_ASSIGN(const int64_t right, Value(size.operands[1], captures, tensor));
  return Computed(size.operation, left, right);
}

void ForEachName(const Expression& expression,
                 const std::function<void(const NamePattern&)>& visit) {
  if (expression.kind == Kind::kName) visit(expression.name);
  for (size_t i = 0; i < expression.arguments.size(); ++i) {
    if (IsTensor(expression, i)) ForEachName(expression.arguments[i], visit);
  }
}

std::set<std::string> CapturesIn(const Expression& expression) {
  std::set<std::string> captures;
  if (expression.kind == Kind::kName) captures = expression.name.Names();
  for (const Size& size : expression.sizes) AddCaptures(size, captures);
  for (const Slice& slice : expression.slices) {
    if (slice.low) AddCaptures(*slice.low, captures);
    if (slice.high) AddCaptures(*slice.high, captures);
  }
  for (const auto& [name, option] : expression.options) {
    if (name == "over") continue;
    for (const Size& size : option.sizes) AddCaptures(size, captures);
  }
  for (const Expression& argument : expression.arguments) captures.merge(CapturesIn(argument));
  return captures;
}

const std::vector<Captures>& Evaluator::Matches(const NamePattern& pattern) {
  const auto [entry, is_new] = matches_.try_emplace(pattern.Text());
  if (is_new) {
    for (const formats::StoredTensor& tensor : side_.tensors) {
      if (auto captures = pattern.Match(tensor.name)) {
        entry->second.push_back(std::move(*captures));
      }
    }
  }
  return entry->second;
}

Result<std::vector<Captures>> Evaluator::Gathered(const Expression& call,
                                                  const Captures& captures) {
  std::vector<Captures> all;
  if (call.arguments.size() != 1) return all;
  std::set<std::string> open = CapturesIn(call.arguments[0]);
  for (const auto& [name, text] : captures) open.erase(name);
  const auto over = call.options.find("over");
  if (over != call.options.end()) {
    const std::string name = over->second.sizes.empty() ? "" : over->second.sizes[0].name;
    if (open.count(name) == 0) {
      return BadInput(fmt::format("over: expected a capture that only this side has, found {}",
                                  Quote(over->second.word)));
    }
    open = {name};
  }
  if (open.empty()) return all;
  if (open.size() > 1) {
    return BadInput(
        fmt::format("expected one capture that the other side does not have, or "
                    "over={{x}} to say which, found {}",
                    fmt::join(open, ", ")));
  }
  std::set<int64_t> values;
  std::string odd;
  ForEachName(call.arguments[0], [&](const NamePattern& pattern) {
    if (pattern.Names().count(*open.begin()) == 0) return;
    for (const Captures& match : Matches(pattern)) {
      if (!Agree(captures, match)) continue;
      const std::string& text = match.at(*open.begin());
      const auto number = AsNumber(text);
      if (number && *number >= 0) {
        values.insert(*number);
      } else {
        odd = text;
      }
    }
  });
  if (!odd.empty()) {
    return BadInput(
        fmt::format("expected {{{}}} to be a number, found {}", *open.begin(), Quote(odd)));
  }
  // From 0 on; those in between that no name has are missing. A number far beyond them is no count.
  const int64_t count = values.empty() ? 1 : *values.rbegin() + 1;
  if (count > static_cast<int64_t>(2 * values.size() + 64)) {
    return BadInput(fmt::format("expected {{{}}} to count from 0, found {} of them up to {}",
                                *open.begin(), values.size(), count - 1));
  }
  for (int64_t value = 0; value < count; ++value) {
    all.push_back(captures);
    all.back()[*open.begin()] = std::to_string(value);
  }
  return all;
}

Status Evaluator::AddNames(const Expression& expression, const Captures& captures, Named& named) {
  if (expression.kind == Kind::kName) {
    for (const std::string& capture : expression.name.Names()) {
      if (captures.count(capture) > 0) continue;
      return BadInput(
          fmt::format("{}: expected {{{}}} on both sides, or a stack or cat of this "
                      "name alone, which puts all of them together",
                      Quote(expression.name.Text()), capture));
    }
    const std::string name = expression.name.Fill(captures);
    (side_.Find(name) == nullptr ? named.missing : named.there).push_back(name);
    return Ok();
  }
  if (Joins(expression)) {
    SP_ASSIGN(const std::vector<Captures> gathered, Gathered(expression, captures));
    for (const Captures& each : gathered) SP_TRY(AddNames(expression.arguments[0], each, named));
    if (!gathered.empty()) return Ok();
  }
  for (size_t i = 0; i < expression.arguments.size(); ++i) {
    if (IsTensor(expression, i)) SP_TRY(AddNames(expression.arguments[i], captures, named));
  }
  return Ok();
}

Result<Evaluator::Named> Evaluator::NamesIn(const Expression& expression,
                                            const Captures& captures) {
  Named named;
  SP_TRY(AddNames(expression, captures, named));
  return named;
}

Result<ViewPtr> Evaluator::Tensor(const std::string& name) const {
  const formats::StoredTensor* tensor = side_.Find(name);
  if (tensor == nullptr) {
    return BadInput(
        fmt::format("expected the name of a tensor of {}, found {}", side_.name, Quote(name)));
  }
  if (side_.view) return side_.view(*tensor);
  return Stored(*tensor);
}

Result<ViewPtr> Evaluator::View(const Expression& expression, const Captures& captures,
                                const ViewPtr& other) {
  switch (expression.kind) {
    case Kind::kName:
      return Tensor(expression.name.Fill(captures));
    case Kind::kNumber:
      return Constant(expression.number);
    case Kind::kSizes:
      return BadInput("expected a tensor, found sizes in brackets");
    case Kind::kSlice:
      return Sliced(expression, captures, other);
    case Kind::kArithmetic: {
      SP_ASSIGN(const ViewPtr left, View(expression.arguments[0], captures, other));
      SP_ASSIGN(const ViewPtr right, View(expression.arguments[1], captures, other));
      return Arithmetic(left, expression.operation, right);
    }
    case Kind::kCall:
      break;
  }
  auto made = Called(expression, captures, other);
  if (!made.ok()) return made.error().While(expression.function);
  return made;
}

Result<ViewPtr> Evaluator::Sliced(const Expression& expression, const Captures& captures,
                                  const ViewPtr& other) {
  const Expression& base = expression.arguments[0];
  const std::string tensor = base.kind == Kind::kName ? base.name.Fill(captures) : "";
  SP_ASSIGN(ViewPtr view, View(base, captures, other));
  size_t dim = 0;
  for (const Slice& slice : expression.slices) {
    if (dim >= view->shape.size()) {
      return BadInput(fmt::format("expected at most {} sizes in [...], as {} has, found {}",
                                  view->shape.size(), ShapeText(view->shape),
                                  expression.slices.size()));
    }
    int64_t low = 0;
    int64_t high = view->shape[dim];
    if (slice.low) {
      SP_ASSIGN(low, sizes_.Value(*slice.low, captures, tensor));
    }
    if (slice.high) {
      SP_ASSIGN(high, sizes_.Value(*slice.high, captures, tensor));
    }
    if (!slice.range) high = low + 1;
    SP_ASSIGN(view, Narrow(view, dim, low, high - low));
    if (slice.range) {
      ++dim;
      continue;
    }
    std::vector<int64_t> shape = view->shape;
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(dim));
    SP_ASSIGN(view, Reshape(view, std::move(shape)));
  }
  return view;
}

Result<int64_t> Evaluator::SizeOption(const Expression& call, const std::string& option,
                                      int64_t otherwise, const Captures& captures) const {
  const auto found = call.options.find(option);
  if (found == call.options.end()) return otherwise;
  if (found->second.sizes.size() != 1) {
    return BadInput(
        fmt::format("{}: expected a whole number, found {}", option, Quote(found->second.word)));
  }
  SP_ASSIGN(const int64_t value, sizes_.Value(found->second.sizes[0], captures));
  if (option != "dim" || (value >= 0 && value < kDimsMax)) return value;
  return BadInput(
      fmt::format("dim: expected a number from 0 to {}, found {}", kDimsMax - 1, value));
}

Result<std::vector<int64_t>> Evaluator::SizeList(const std::vector<Size>& sizes,
                                                 const Captures& captures) const {
  std::vector<int64_t> values;
  for (const Size& size : sizes) {
    SP_ASSIGN(const int64_t value, sizes_.Value(size, captures));
    values.push_back(value);
  }
  return values;
}

Result<std::vector<ViewPtr>> Evaluator::Parts(const Expression& call, const Captures& captures,
                                              const ViewPtr& other) {
  std::vector<ViewPtr> parts;
  if (Joins(call)) {
    SP_ASSIGN(const std::vector<Captures> gathered, Gathered(call, captures));
    for (const Captures& each : gathered) {
      SP_ASSIGN(ViewPtr part, View(call.arguments[0], each, other));
      parts.push_back(std::move(part));
    }
    if (!parts.empty()) return parts;
  }
  for (const Expression& argument : call.arguments) {
    if (argument.kind == Kind::kSizes || !IsTensor(call, parts.size())) break;
    if (call.function == "transpose" && !parts.empty()) break;
    SP_ASSIGN(ViewPtr part, View(argument, captures, other));
    parts.push_back(std::move(part));
  }
  if (!parts.empty()) return parts;
  return BadInput("expected a tensor, found none");
}

Result<ViewPtr> Evaluator::Padded(const Expression& call, const ViewPtr& part,
                                  const Captures& captures, const ViewPtr& other) {
  SP_TRY(CheckCall(call, 1, 1, {"dim", "size", "with"}));
  SP_ASSIGN(const int64_t dim, SizeOption(call, "dim", 0, captures));
  const auto index = static_cast<size_t>(dim);
  const bool known = other != nullptr && index < other->shape.size();
  SP_ASSIGN(const int64_t size,
            SizeOption(call, "size", known ? other->shape[index] : -1, captures));
  const auto with = call.options.find("with");
  if (with == call.options.end()) return BadInput("expected with=last or with=NUMBER, found none");
  if (with->second.word == "last") return PadWithLast(part, index, size);
  if (with->second.number) return PadWithValue(part, index, size, *with->second.number);
  return BadInput(
      fmt::format("with: expected last or a number, found {}", Quote(with->second.word)));
}

Result<ViewPtr> Evaluator::Turned(const Expression& call, const ViewPtr& part,
                                  const Captures& captures) {
  if (call.function == "permute" || call.function == "reshape") {
    SP_TRY(CheckCall(call, 2, 2, {}));
    if (call.arguments[1].kind != Kind::kSizes) return BadInput("expected [...] behind the tensor");
    SP_ASSIGN(std::vector<int64_t> sizes, SizeList(call.arguments[1].sizes, captures));
    if (call.function == "reshape") return Reshape(part, std::move(sizes));
    return Permute(part, std::vector<size_t>(sizes.begin(), sizes.end()));
  }
  SP_TRY(CheckCall(call, 1, 3, {}));
  std::vector<size_t> order(part->shape.size());
  for (size_t dim = 0; dim < order.size(); ++dim) order[dim] = dim;
  size_t dims[] = {order.size() - 2, order.size() - 1};
  for (size_t i = 1; i < call.arguments.size(); ++i) {
    dims[i - 1] = static_cast<size_t>(std::clamp(call.arguments[i].number, 0.0, 64.0));
  }
  if (call.arguments.size() == 2 || dims[0] >= order.size() || dims[1] >= order.size()) {
    return BadInput(fmt::format("expected no dims, or two below {} of a tensor {}", order.size(),
                                ShapeText(part->shape)));
  }
  std::swap(order[dims[0]], order[dims[1]]);
  return Permute(part, order);
}

Result<ViewPtr> Evaluator::Called(const Expression& call, const Captures& captures,
                                  const ViewPtr& other) {
  constexpr size_t kMany = 1 << 20;
  const std::string& name = call.function;
  SP_ASSIGN(const std::vector<ViewPtr> parts, Parts(call, captures, other));
  const auto plain = [&](size_t arguments) { return CheckCall(call, arguments, arguments, {}); };
  if (name == "cat" || name == "stack" || name == "interleave") {
    SP_TRY(CheckCall(call, 1, kMany,
                     Joins(call) ? std::set<std::string>{"dim", "over"}
                                 : std::set<std::string>{"dim", "groups"}));
    SP_ASSIGN(const int64_t dim, SizeOption(call, "dim", 0, captures));
    if (name == "cat") return Join(parts, static_cast<size_t>(dim));
    if (name == "stack") return Stack(parts, static_cast<size_t>(dim));
    SP_ASSIGN(const int64_t groups, SizeOption(call, "groups", 0, captures));
    return Interleave(parts, static_cast<size_t>(dim), groups);
  }
  if (name == "transpose" || name == "permute" || name == "reshape") {
    return Turned(call, parts[0], captures);
  }
  if (name == "pad") return Padded(call, parts[0], captures, other);
  if (name == "cast" || name == "bits") {
    SP_TRY(plain(2));
    const std::string dtype = call.arguments[1].name.Text();
    return name == "cast" ? CastTo(parts[0], dtype) : BitsAs(parts[0], dtype);
  }
  if (name == "unpack_fp4") {
    SP_TRY(plain(1));
    return UnpackFp4(parts[0]);
  }
  if (name == "reciprocal") {
    SP_TRY(plain(1));
    return Arithmetic(Constant(1), '/', parts[0]);
  }
  if (name == "scaled") {
    SP_TRY(CheckCall(call, 2, 2, {"block"}));
    std::vector<int64_t> block;
    if (const auto stated = call.options.find("block"); stated != call.options.end()) {
      SP_ASSIGN(block, SizeList(stated->second.sizes, captures));
    }
    return Scaled(parts[0], parts.at(1), std::move(block));
  }
  if (name == "merged") {
    SP_TRY(plain(4));
    return Merged(parts[0], parts.at(1), parts.at(2), call.arguments[3].number);
  }
  return BadInput(fmt::format("expected one of the functions {}", kFunctions));
}

}  // namespace shardproof::maps
