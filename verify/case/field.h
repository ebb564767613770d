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

/// What `Of` makes of one of the types that a field may have. Codec and schema have one function
/// for each of these types.
template <template <typename> typename Of>
using OfFieldType =
    std::variant<Of<bool>, Of<int64_t>, Of<uint64_t>, Of<double>, Of<std::string>,
                 Of<std::vector<int64_t>>, Of<std::vector<double>>, Of<std::vector<std::string>>,
                 Of<std::vector<std::vector<std::string>>>, Of<std::map<std::string, std::string>>,
                 Of<std::vector<AxisCase>>, Of<std::vector<FaultCase>>, Of<std::vector<TensorCase>>,
                 Of<std::vector<std::vector<StoredCase>>>, Of<std::optional<RopeCase>>,
                 Of<std::optional<LoraCase>>, Of<ModelCase>, Of<TrainingCase>>;

template <typename Struct>
struct MemberOf {
  template <typename Type>
  using Pointer = Type Struct::*;
};

template <typename Type>
using PointerTo = Type*;

/// Where a field is in its struct.
template <typename Struct>
using Member = OfFieldType<MemberOf<Struct>::template Pointer>;

template <typename Struct>
struct Field {
  Member<Struct> member;
  FieldRow row;
};

template <typename Struct>
using FieldTable = std::vector<Field<Struct>>;

/// A field of one case: its row and its value there.
struct FieldOfCase {
  std::string path;  ///< "seed", "training/keep", "model/files"
  const FieldRow* row;
  OfFieldType<PointerTo> value;
};

}  // namespace shardproof
