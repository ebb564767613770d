// A damaged source: one file of the DCP checkpoint that is loaded is other than the format allows.
#include <fmt/format.h>

#include "verify/dcp_forms/damage.h"
#include "verify/fault/fault.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/faults/edit_where.h"
#include "verify/faults/shown_files.h"

namespace shardproof::faults::file_damage_dcp {
namespace {

Result<EditAndNumber> Parse(const std::string& where) {
  const std::vector<std::string> names = dcp_forms::DamageNames();
  std::vector<std::string> known = names;
  known.emplace_back("any");
  SP_ASSIGN(EditAndNumber parsed, ParseEdit(where, known));
  if (parsed.edit == "any") {
    parsed.edit = names[parsed.n % names.size()];
    parsed.n /= names.size();
  }
  return parsed;
}

Result<dcp_forms::Damaged> DamagedBy(const Case& test_case, const std::string& where) {
  SP_ASSIGN(const EditAndNumber parsed, Parse(where));
  return dcp_forms::Damage(test_case, parsed.edit, parsed.n);
}

/// What is done, to `whose`: "tensor 'w'" or "it".
std::string InWords(const EditAndNumber& parsed, const std::string& whose) {
  return fmt::format(fmt::runtime(dcp_forms::DamageInWords(parsed.edit)), whose);
}

std::vector<std::string> TwiceEach() {
  std::vector<std::string> places;
  for (const std::string& name : dcp_forms::DamageNames()) {
    for (const int n : {0, 1}) places.push_back(fmt::format("{}:{}", name, n));
  }
  return places;
}

const FaultRegistration kRegistration{{
    .id = "file/damage-dcp",
    .what = "a file of the DCP checkpoint that is loaded is damaged so that no reader may take it",
    .where = "EDIT:N: what is done (any, or such as cut, field-gone, chunk-moved, item-dtype, "
             "member-gone), and to the N-th tensor that has bytes, in the order of their keys, "
             "wrapping around: chunk-moved:3",
    .example = {"chunk-moved:3",
                "a file of the DCP checkpoint that is loaded has a piece of the fourth tensor that "
                "has bytes, by their keys, elsewhere in the tensor"},
    .model = FaultModel::kMustRefuse,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>&,
                const std::string& where) -> Status {
      SP_TRY(Parse(where));
      SP_TRY(CheckFormat(test_case, "dcp"));
      SP_TRY(DamagedBy(test_case, where));
      return Ok();
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          const auto shown = [damaged = DamagedBy(site.test_case, where).value(),
                              what = InWords(Parse(where).value(), "a tensor"),
                              below = site.source_directory + "/",
                              log = site.log](const std::string& path,
                                              std::string_view) -> std::optional<std::string> {
            if (!path.starts_with(below)) return std::nullopt;
            const std::string name = path.substr(below.size());
            const auto found = damaged.files.find(name);
            if (found == damaged.files.end()) return std::nullopt;
            if (name == damaged.file) {
              log({.detail = fmt::format("{} {}", name, what),
                   .file = name,
                   .tensors = {damaged.key}});
            }
            return found->second;
          };
          site.world.files = ShowOther(site.world.files, shown);
        },
    .in_words = [](const Case&, const std::string& where) -> std::string {
      const auto parsed = Parse(where);
      if (!parsed.ok()) return "";
      const int64_t number = static_cast<int64_t>(parsed.value().n) + 1;
      return "a file of the DCP checkpoint that is loaded " +
             InWords(parsed.value(),
                     fmt::format("the {} tensor that has bytes, by their keys,", Ordinal(number)));
    },
    .on_any_device = true,
    .tried_at = TwiceEach(),
}};

}  // namespace
}  // namespace shardproof::faults::file_damage_dcp
