#include "verify/formats/file_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "verify/oracle/header.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::Printable;
using oracle::Quote;

constexpr size_t kNameBytesMax = 255;
constexpr int64_t kMissingNamedMax = 20;

/// A name that has a number of its own, of which there should be `count`, from `first` on.
struct Numbered {
  std::string before;
  std::string after;
  size_t digits = 0;  ///< of the number, with leading zeros; 0: without
  int64_t number = 0;
  int64_t first = 0;
  std::optional<int64_t> count;  ///< none: up to the largest that is there
  bool needs_index = false;

  std::string Name(int64_t other) const {
    return fmt::format("{}{:0{}}{}", before, other, digits, after);
  }
};

int64_t NumberOf(const std::string& digits) {
  int64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

/// The rank in the name of an adapter's file is that of its matrices.
bool IsOfAdapter(const std::string& name) {
  static const std::regex kAdapter(".*(lora|adapter).*", std::regex::icase);
  return std::regex_match(name, kAdapter);
}

/// \param partitions  of DeepSpeed's ZeRO, as its files say; none: not said.
std::optional<Numbered> Parse(const std::string& name, std::optional<int64_t> partitions) {
  static const std::regex kZero(
      "(.*zero_pp_rank_)([0-9]{1,6})(_mp_rank_[0-9]{2,6}_(?:optim|model)_states\\.pt)");
  static const std::regex kExpert(
      "(.*(?:layer_[0-9]{1,6}_expert|expp_rank)_)([0-9]{1,6})"
      "(_mp_rank_[0-9]{2,6}_(?:optim|model)_states\\.pt)");
  static const std::regex kOfMany("(.*-)([0-9]{5})(-of-([0-9]{5})\\.(?:safetensors|bin))");
  static const std::regex kOfWorld("(.*world_size_([0-9]{1,6})_rank_)([0-9]{1,6})(\\.[a-z]+)");
  static const std::regex kPart("(.*rank[-_]?[0-9]{1,6}[-_]part[-_]?)([0-9]{1,6})(\\.safetensors)");
  static const std::regex kRank("(.*rank[-_]?)([0-9]{1,6})((?:[-_]part[-_]?0)?\\.safetensors)");
  static const std::regex kConsolidated("(consolidated\\.)([0-9]{2})(\\.pth)");
  static const std::regex kTensorParallel(
      "(.*mp_rank_)([0-9]{2})(/model_(?:optim_)?rng\\.pt|_model_states\\.pt)");
  std::smatch found;
  if (name.size() > kNameBytesMax) return std::nullopt;
  if (std::regex_match(name, found, kConsolidated) ||
      std::regex_match(name, found, kTensorParallel)) {
    return Numbered{found[1], found[3], 2, NumberOf(found[2]), 0, {}};
  }
  if (std::regex_match(name, found, kZero)) {
    return Numbered{found[1], found[3], 0, NumberOf(found[2]), 0, partitions};
  }
  if (std::regex_match(name, found, kExpert)) {
    return Numbered{found[1], found[3], 0, NumberOf(found[2]), 0, {}};
  }
  if (std::regex_match(name, found, kOfMany)) {
    return Numbered{found[1], found[3], 5, NumberOf(found[2]), 1, NumberOf(found[4]), true};
  }
  if (std::regex_match(name, found, kOfWorld)) {
    return Numbered{found[1], found[4], 0, NumberOf(found[3]), 0, NumberOf(found[2])};
  }
  if (IsOfAdapter(name)) return std::nullopt;
  if (std::regex_match(name, found, kRank)) {
    return Numbered{found[1], found[3], 0, NumberOf(found[2]), 0, {}};
  }
  if (std::regex_match(name, found, kPart)) {
    return Numbered{found[1], found[3], 0, NumberOf(found[2]), 0, {}};
  }
  return std::nullopt;
}

}  // namespace

std::string RankOf(const std::string& file) {
  static const std::regex kRank("(.*rank[-_]?[0-9]{1,6})([-_]part[-_]?[0-9]{1,6})?\\.safetensors");
  std::smatch found;
  const bool is_one =
      file.size() <= kNameBytesMax && !IsOfAdapter(file) && std::regex_match(file, found, kRank);
  return is_one ? found[1].str() : "";
}

std::string FamilyOf(const std::string& file) {
  static const std::regex kNumber("[-_.]?(world_size|rank|part|of|tp|pp|dp|ep|cp)?[-_]?[0-9]+");
  const std::filesystem::path path = std::filesystem::path(file).replace_extension();
  std::filesystem::path family;
  for (const std::filesystem::path& part : path) {
    const std::string name = part.string();
    const bool is_folder = part != path.filename();
    if (name.size() > kNameBytesMax || (is_folder && IsFolderOfRank(name))) continue;
    const std::string plain = std::regex_replace(name, kNumber, "");
    if (!plain.empty()) family /= plain;
  }
  return family.string();
}

bool IsFolderOfRank(const std::string& folder) {
  static const std::regex kName(
      "(.*[/_-])?(rank|tp|pp|dp|ep|cp|node|host|worker)[-_]?[0-9]{1,6}([-_][0-9]{1,6})*");
  return folder.size() <= kNameBytesMax && std::regex_match(folder, kName);
}

Status CheckComplete(const std::string& directory, const std::vector<std::string>& names,
                     bool has_index, oracle::Damage* damage, std::optional<int64_t> partitions) {
  std::map<std::pair<std::string, std::string>, std::vector<Numbered>> families;
  for (const std::string& name : names) {
    if (const auto numbered = Parse(name, partitions)) {
      families[{numbered->before, numbered->after}].push_back(*numbered);
    }
  }
  for (const auto& [key, members] : families) {
    const Numbered& one = members.front();
    int64_t end = one.count ? one.first + *one.count : 0;
    std::set<int64_t> numbers;
    for (const Numbered& member : members) {
      numbers.insert(member.number);
      if (!one.count) end = std::max(end, member.number + 1);
    }
    int64_t missing = 0;
    for (int64_t i = one.first; i < end; ++i) {
      if (numbers.contains(i) || oracle::Exists(directory + "/" + one.Name(i))) continue;
      if (++missing > kMissingNamedMax) break;
      SP_TRY(oracle::Note(
          BadInput(fmt::format("{}: expected {} beside {}, found none", Printable(directory),
                               Quote(one.Name(i)), Quote(one.Name(one.number)))),
          damage));
    }
    if (one.needs_index && !has_index && end - one.first > 1) {
      SP_TRY(oracle::Note(BadInput(fmt::format(
                              "{}: expected an index of the {} files that {} is one of, found none",
                              Printable(directory), end - one.first, Quote(one.Name(one.number)))),
                          damage));
    }
  }
  return Ok();
}

Status CheckUniversal(const std::string& directory,
                      const std::map<std::string, std::vector<int64_t>>& shapes,
                      const std::vector<std::string>& names, oracle::Damage* damage) {
  static const std::regex kPart("(.*/)?(zero/[^/]+/)([^/]+\\.pt)");
  constexpr const char* kParameter = "fp32.pt";
  std::map<std::string, std::set<std::string>> files;  // by the parameter's folder
  for (const std::string& name : names) {
    std::smatch found;
    if (name.size() > kNameBytesMax || !std::regex_match(name, found, kPart)) continue;
    files[found[1].str() + found[2].str()].insert(found[3]);
  }
  std::map<std::set<std::string>, size_t> kinds;
  size_t with_state = 0;
  for (const auto& [folder, kind] : files) {
    with_state += kind.size() > 1;
    if (kind.size() > 1 && kind.contains(kParameter)) ++kinds[kind];
  }
  for (const auto& [folder, own] : files) {
    const auto parameter = shapes.find(folder + kParameter);
    for (const std::string& file : own) {
      const auto state = shapes.find(folder + file);
      const bool is_alike = damage == nullptr || parameter == shapes.end() ||
                            state == shapes.end() || state->second == parameter->second;
      if (is_alike) continue;
      SP_TRY(oracle::Note(
          BadInput(fmt::format("{}: expected {} to hold [{}] as {} does, found [{}]",
                               Printable(directory), Quote(folder + file),
                               fmt::join(parameter->second, ", "), Quote(folder + kParameter),
                               fmt::join(state->second, ", "))),
          damage));
    }
    std::set<std::string> lacks;
    if (!own.contains(kParameter)) lacks.insert(kParameter);
    for (const auto& [kind, count] : kinds) {
      const bool is_part = own.size() > 1 && own.size() < kind.size() && count * 2 > with_state &&
                           std::includes(kind.begin(), kind.end(), own.begin(), own.end());
      if (!is_part) continue;
      std::set_difference(kind.begin(), kind.end(), own.begin(), own.end(),
                          std::inserter(lacks, lacks.end()));
    }
    for (const std::string& file : lacks) {
      SP_TRY(oracle::Note(
          BadInput(fmt::format("{}: expected {} beside {}, found none", Printable(directory),
                               Quote(folder + file), Quote(folder + *own.begin()))),
          damage));
    }
  }
  return Ok();
}

}  // namespace shardproof::formats
