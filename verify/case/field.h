// What a row of the tables of fields says (fields.h): all that codec, schema, command line,
// generator, features, shrinker and Job have to know of a field.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "verify/case/case.h"

namespace shardproof {

/// What an integer may be; of a list of them, each.
struct IntegerBounds {
  uint64_t low = 0;
  uint64_t high = std::numeric_limits<uint64_t>::max();
};

/// What a number may be; of a list of them, each.
struct RealBounds {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool excludes_low = false;
};

/// How generated cases give a field a value.
struct FieldDraw {
  enum class How {
    kNever,        ///< it keeps its default
    kFlag,         ///< true in `percent` of a hundred
    kValue,        ///< in `percent` of a hundred, one of `values`
    kAnyName,      ///< one of its names
    kByHand,       ///< by a function of its own (verify/generate/draw_by_hand.cc)
    kWithAnother,  ///< by what draws the field that it is a part of, or hangs on
  };
  using Value = std::variant<int64_t, double, std::string>;

  How how = How::kNever;
  int percent = 0;
  std::vector<Value> values = {};  ///< the same one twice is twice as likely
  bool for_subjects = false;       ///< drawn for a Python subject, too
};

/// How a failing case is tried without what a field says.
enum class FieldShrink {
  kNever,
  kToDefault,
  kByHand,     ///< by a function of its own (verify/generate/shrink.cc)
  kElsewhere,  ///< by its parts, with all tensors or faults, or at the end as the seed is
};

/// The words under which cases are counted that have something other than the default. What takes
/// more than that to say, verify/generate/features.cc says.
struct FieldFeature {
  const char* name = nullptr;
  bool each_name = false;  ///< `name` with a dot and what the field says, default or not
};

/// The part of `verify --help` that an option stands in.
enum class OptionGroup { kModel, kRanks, kPipeline, kFramework, kFaults };

/// An option of `shardproof verify`.
struct FieldOption {
  const char* name = nullptr;
  const char* help = "";
  const char* type_name = "";
  OptionGroup group = OptionGroup::kModel;
  bool by_hand = false;          ///< its text is read by a function (verify/cli/verify_case.cc)
  bool of_generated = false;     ///< has a meaning for generated cases, too
  const char* former = nullptr;  ///< a name that is still taken, and not shown
};

/// Which models of a case a field of ModelCase is about.
enum class ModelSource { kEither, kCheckpoint, kSynthetic };

/// What a table says of a field. Its default is what the struct has when nobody sets it.
struct FieldRow {
  const char* name;
  const char* doc;  ///< a sentence or more
  bool required = false;
  bool left_out_as_usual = false;  ///< not written where it has its default
  IntegerBounds integers = {};
  RealBounds reals = {};
  /// What a string may be, of verify/case/names.h; none: anything.
  const std::vector<std::string_view>& (*names)() = nullptr;
  std::pair<const char*, const char*> former = {};  ///< a name that is still read, and its new one
  const char* schema = "{}";  ///< JSON: what its JSON schema says besides, of what checks refuse
  ModelSource source = ModelSource::kEither;
  FieldDraw draw = {};
  FieldShrink shrink = FieldShrink::kNever;
  FieldFeature feature = {};
  FieldOption option = {};
  bool copied = false;  ///< as it is, to the member of Job or Training that has its name
};

/// Where a field is in its struct. Codec and schema have one function for each of these types.
template <typename Struct>
using Member =
    std::variant<bool Struct::*, int64_t Struct::*, uint64_t Struct::*, double Struct::*,
                 std::string Struct::*, std::vector<int64_t> Struct::*,
                 std::vector<double> Struct::*, std::vector<std::string> Struct::*,
                 std::vector<std::vector<std::string>> Struct::*,
                 std::map<std::string, std::string> Struct::*, std::vector<AxisCase> Struct::*,
                 std::vector<FaultCase> Struct::*, std::vector<TensorCase> Struct::*,
                 std::vector<std::vector<StoredCase>> Struct::*, std::optional<RopeCase> Struct::*,
                 std::optional<LoraCase> Struct::*, ModelCase Struct::*, TrainingCase Struct::*>;

template <typename Struct>
struct Field {
  Member<Struct> member;
  FieldRow row;
};

template <typename Struct>
using FieldTable = std::vector<Field<Struct>>;

/// A field of one case: its row and its value there.
struct FieldOfCase {
  using Value =
      std::variant<bool*, int64_t*, uint64_t*, double*, std::string*, std::vector<int64_t>*,
                   std::vector<double>*, std::vector<std::string>*,
                   std::vector<std::vector<std::string>>*, std::map<std::string, std::string>*,
                   std::vector<AxisCase>*, std::vector<FaultCase>*, std::vector<TensorCase>*,
                   std::vector<std::vector<StoredCase>>*, std::optional<RopeCase>*,
                   std::optional<LoraCase>*, ModelCase*, TrainingCase*>;

  std::string path;  ///< "seed", "training/keep", "model/files"
  const FieldRow* row;
  Value value;
};

}  // namespace shardproof
