// Python pickles, written opcode by opcode: what torch.save and torch.distributed.checkpoint would
// have written for the same values, as far as their readers care.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shardproof::pickle {

/// One pickle of protocol 2. The calls follow Python's stack machine: each pushes one value, or
/// makes one of what was pushed since the last Mark. The bytes are a pure function of the calls.
/// \source Python's pickletools: the opcodes and what they take.
class PickleWriter {
 public:
  PickleWriter();

  void None() { Put('N'); }
  void Bool(bool value) { Put(value ? '\x88' : '\x89'); }
  void Integer(int64_t value);
  void Float(double value);
  void Text(std::string_view utf8);
  /// A class or function, imported by whoever reads.
  void Name(std::string_view module, std::string_view name);
  /// A tuple of integers, and the same as a torch.Size.
  void Integers(const std::vector<int64_t>& values);
  void Size(const std::vector<int64_t>& values);

  void Mark() { Put('('); }
  void EmptyTuple() { Put(')'); }
  void EmptyList() { Put(']'); }
  void EmptyDict() { Put('}'); }
  void Tuple() { Put('t'); }         ///< of all since the mark
  void Appends() { Put('e'); }       ///< all since the mark to the list below it
  void SetItems() { Put('u'); }      ///< pairs since the mark to the dict below it
  void Reduce() { Put('R'); }        ///< a name and a tuple of arguments: the call
  void NewObject() { Put('\x81'); }  ///< a class and a tuple of arguments: an object, uninitialised
  void Build() { Put('b'); }         ///< an object and its state
  void Persistent() { Put('Q'); }    ///< an id, which stands for what is kept elsewhere

  /// Ends the pickle. \returns all of its bytes.
  std::string Finish();

 private:
  void Put(char opcode) { bytes_ += opcode; }
  template <typename Number>
  void PutNumber(Number number);

  std::string bytes_;
  /// What is in the memo, by place: modules and names, of which a pickle has few.
  std::vector<std::pair<std::string, std::string>> names_;
};

}  // namespace shardproof::pickle
