// Pickles as other writers make them: a value in any of the ways that Python's grammar allows.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "verify/oracle/draws.h"

namespace shardproof::dcp_forms {

using oracle::Draws;

/// A value that checkpoints need.
struct Py {
  enum class Kind {
    kNone,
    kBool,        ///< integer
    kInteger,     ///< integer
    kText,        ///< text
    kTuple,       ///< items
    kList,        ///< items
    kDict,        ///< items: key, value, key, value
    kName,        ///< text: module, a line break, name
    kCall,        ///< items: what is called, the arguments
    kObject,      ///< items: its class, its state
    kPersistent,  ///< items: the id
  };

  Kind kind = Kind::kNone;
  int64_t integer = 0;
  std::string text = {};
  std::vector<Py> items = {};

  static Py None() { return {}; }
  static Py Bool(bool value) { return {.kind = Kind::kBool, .integer = value ? 1 : 0}; }
  static Py Integer(int64_t value) { return {.kind = Kind::kInteger, .integer = value}; }
  static Py Text(std::string text) { return {.kind = Kind::kText, .text = std::move(text)}; }
  static Py Name(const std::string& module, const std::string& name) {
    return {.kind = Kind::kName, .text = module + "\n" + name};
  }
  static Py Of(Kind kind, std::vector<Py> items) {
    return {.kind = kind, .items = std::move(items)};
  }
  static Py Integers(const std::vector<int64_t>& values);  ///< a tuple
  static Py Size(const std::vector<int64_t>& values);      ///< a torch.Size

  /// The value at a text key of a dict, which is there.
  Py& At(const std::string& key);
};

/// Who must be able to read a pickle: Python, or torch.load with weights_only, which knows protocol
/// 2 and not all of its opcodes.
enum class Reads { kPython, kTorch };

/// One pickle, of protocol 2 to 5, that is read as `value`; which of many, `draws` says.
std::string PickleOf(const Py& value, Reads reads, Draws& draws);

}  // namespace shardproof::dcp_forms
