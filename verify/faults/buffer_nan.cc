// A buffer turns NaN on one rank, as a reallocation that nobody fills does.
#include <fmt/format.h>

#include <limits>

#include "verify/fault/fault.h"

namespace shardproof::faults::buffer_nan {
namespace {

/// NAME or NAME:RANK; the name is a buffer's, so the source need not know it.
Result<WhatAndRank> TargetOf(const Case& test_case, const std::string& where) {
  SP_ASSIGN(const auto declared, oracle::DeclareModel(test_case));
  SP_ASSIGN(const auto target, SplitRank(test_case, where));
  std::string buffers;
  bool known = false;
  for (const TensorCase& tensor : declared.tensors) {
    if (tensor.kind != "buffer") continue;
    buffers += (buffers.empty() ? "" : ", ") + tensor.name;
    if (tensor.name != target.what) continue;
    known = true;
    if (tensor.dtype[0] != 'F' && tensor.dtype != "BF16") {
      return BadInput(
          fmt::format("buffer '{}' is {}, which has no NaN", tensor.name, tensor.dtype));
    }
  }
  if (!known) {
    return BadInput(fmt::format("the model has no buffer '{}': its buffers are {}", target.what,
                                buffers.empty() ? "none" : buffers));
  }
  return target;
}

const FaultRegistration kRegistration{{
    .id = "buffer/nan",
    .what = "a buffer's elements become NaN on one rank once buffers are computed",
    .where = "NAME, or NAME:RANK (else the last rank): model.rotary_emb.inv_freq:2",
    .example = {"rotary.inv_freq:0",
                "on rank 0, the elements of rotary.inv_freq become NaN once buffers are "
                "computed"},
    .model = FaultModel::kMustBeSeen,
    .check = [](const Case& test_case, const std::vector<oracle::TensorLocation>&,
                const std::string& where) -> Status {
      SP_TRY(TargetOf(test_case, where));
      return Ok();
    },
    .arm =
        [](FaultSite site, const std::string& where) {
          const WhatAndRank target = TargetOf(site.test_case, where).value();
          auto compute = site.stages.compute_buffers;
          site.stages.compute_buffers = [=, log = site.log](Model& model, const Job& job,
                                                            World& world) -> Status {
            SP_TRY(compute(model, job, world));
            for (const auto& [name, slot] : model.Named()) {
              if (name != target.what || world.rank() != target.rank) continue;
              log({.detail = fmt::format("{} filled with NaN on rank {}", name, target.rank),
                   .tensors = {name}});
              slot->value.fill_(std::numeric_limits<double>::quiet_NaN());
            }
            return Ok();
          };
        },
    .in_words = [](const Case& test_case, const std::string& where) -> std::string {
      const auto target = SplitRank(test_case, where);
      if (!target.ok()) return "";
      return fmt::format("on rank {}, the elements of {} become NaN once buffers are computed",
                         target.value().rank, target.value().what);
    },
    .tried_at = {"a.table:0", "a.table:1"},
}};

}  // namespace
}  // namespace shardproof::faults::buffer_nan
