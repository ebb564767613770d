// Python pickles as plain data. Nothing in a pickle is imported, called or constructed: what a
// pickle would have Python call is looked up in a table (pickle_names.cc). What is not in it is
// refused, or kept as it stands: a name, its arguments and its state.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/result.h"

namespace shardproof::pickle {

/// One value. Values may be shared and, in a hostile pickle, contain themselves: who walks them
/// bounds depth and count.
struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,        ///< integer
    kInteger,     ///< integer; beyond 64 bits text has all of it, little-endian two's complement
    kFloat,       ///< number
    kText,        ///< text: UTF-8
    kBytes,       ///< text
    kTuple,       ///< items
    kList,        ///< items
    kSet,         ///< items
    kDict,        ///< items: key, value, key, value
    kName,        ///< text: "module.name" of what Python would import
    kObject,      ///< text: its class or function as kName; items: the arguments; state, if it was
                  ///< given
    kPersistent,  ///< items: one, the id; what it stands for is kept outside of the pickle
  };

  Kind kind = Kind::kNone;
  bool is_big = false;     ///< of kInteger: text holds it
  bool is_opaque = false;  ///< of kName, kObject: its name is not in the table
  int64_t integer = 0;
  double number = 0;
  std::string_view text;  ///< lives as long as the Pickle
  std::vector<const PickleValue*> items;
  const PickleValue* state = nullptr;

  bool Is(Kind wanted) const { return kind == wanted; }
  bool IsObject(std::string_view name) const { return kind == Kind::kObject && text == name; }
  /// The value at a text key of a dict, or of an object's state; null if there is none.
  const PickleValue* At(std::string_view key) const;
};

/// "an int", "a tuple of 3", "torch.Size": for messages.
std::string Describe(const PickleValue& value);

/// The value in Python's notation, for people and for comparing: "[1, 2.5, None, 'x']". Floats in
/// the shortest form that reads back to the same bits, NaN with its bits. Dicts in their order.
/// \error kBadInput if it nests deeper than 100, or has more than 16 million parts or 64 MiB of
/// text.
Result<std::string> TextOf(const PickleValue& value);

/// A pickle's value and the memory that it lives in.
class Pickle {
 public:
  const PickleValue& root() const { return *root_; }

  /// Names that are not in the table, each with the number of values that it would have made.
  const std::map<std::string, uint64_t, std::less<>>& opaque() const { return opaque_; }

 private:
  friend class PickleMachine;
  std::unique_ptr<const std::string> bytes_;
  std::deque<PickleValue> values_;
  std::deque<std::string> texts_;  ///< those that do not stand in the bytes as they are
  std::map<std::string, uint64_t, std::less<>> opaque_;
  const PickleValue* root_ = nullptr;
};

/// What to do with names that are not in the table.
enum class UnknownNames : uint8_t {
  kRefuse,
  kKeep,  ///< as is_opaque, unless they are of Python modules that run programs or import
};

/// Reads one pickle of protocol 2 to 5, which is all of `bytes`.
/// \param where  what is read, for messages: "DIR/.metadata".
/// \error with the offset. kBadInput: an opcode that no checkpoint needs, a pickle that is cut
/// short,
///   takes from an empty stack or an unset memo, or has more than 16 Mi values. kUnsupported: a
///   name that is refused.
Result<Pickle> ReadPickle(std::string bytes, const std::string& where,
                          UnknownNames unknown = UnknownNames::kRefuse);

/// What is made of a name that a pickle calls.
enum class PickleCall : uint8_t {
  kUnknown,  ///< not in the table: refused
  kName,     ///< is named, never called: dtypes, storage classes
  kObject,   ///< an object: name, arguments, state
  kDict,     ///< OrderedDict() and the like: a dict
  kTuple,    ///< torch.Size(t), tuple(t): a tuple
  kSet,      ///< set(l), frozenset(l): a set
  kEncode,   ///< _codecs.encode(text, "latin1"): bytes
  kMember,   ///< getattr(class, "name") of a class in the table: the name class.name
};
PickleCall FindPickleName(std::string_view module, std::string_view name);

/// Whether Python would run a program, import a module or evaluate text by this name: such a
/// pickle is an attack, whatever else is in it.
bool MayRunPrograms(std::string_view module, std::string_view name);

}  // namespace shardproof::pickle
