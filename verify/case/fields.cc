#include "verify/case/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "src/core/check.h"
#include "verify/case/draws.h"
#include "verify/case/names.h"

namespace shardproof {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 50;  // of any budget
constexpr uint64_t kDayMs = 24u * 60 * 60 * 1000;

using How = FieldDraw::How;

const FieldDraw kByHandForAll = {.how = How::kByHand, .for_subjects = true};
const FieldDraw kWithAnother = {.how = How::kWithAnother, .for_subjects = true};

const FieldTable<Case> kCaseFields = {
    {&Case::schema,
     {.name = "schema",
      .doc = "The version of this file format.",
      .required = true,
      .integers = {1, 1}}},
    {&Case::why, {.name = "why", .doc = "One line: what this case is for."}},
    {&Case::subject,
     {.name = "subject",
      .doc = "What is verified: `reference`, or a Python file with run(case, observe).",
      .schema = R"({"minLength": 1})",
      .draw = kByHandForAll,
      .option = {.name = "--subject",
                 .help = "Python file with def run(case, observe), see verify/subjects/README.md; "
                         "or reference (default)",
                 .type_name = "FILE",
                 .group = OptionGroup::kFramework,
                 .by_hand = true,
                 .of_generated = true}}},
    {&Case::model,
     {.name = "model",
      .doc = "Where the model and its values come from: exactly one of a checkpoint and a list of "
             "tensors.",
      .required = true,
      .draw = kByHandForAll,
      .shrink = FieldShrink::kElsewhere}},
    {&Case::mesh,
     {.name = "mesh",
      .doc = "The ranks; the product of the sizes of all axes that are not laid over others is "
             "the world size, at most 1024. Axis names differ.",
      .required = true,
      .schema = R"({"minItems": 1})",
      .draw = kByHandForAll,
      .shrink = FieldShrink::kByHand,
      .option = {.name = "--mesh",
                 .help = "Ranks as a mesh: dp_replicate=2,dp_shard=2, or 2x2 for the same; 2x2x2 "
                         "adds a third axis, tp. In the reference, dp_shard cuts dim 0 of each "
                         "parameter, tp cuts as tensor parallelism does, ep gives each rank whole "
                         "experts, and dp_replicate and cp (context parallelism) hold replicas. "
                         "Subjects can also have pp (pipeline stages), axes with names of your "
                         "own, and axes that are laid over others and divide their ranks: "
                         "dp_shard=4,ep=2@dp_shard, or ep=4@dp_shard+cp",
                 .type_name = "MESH",
                 .group = OptionGroup::kRanks,
                 .by_hand = true}}},
    {&Case::resume_mesh,
     {.name = "resume_mesh",
      .doc = "A second mesh to restore on; empty: that phase does not run.",
      .draw = kByHandForAll,
      .shrink = FieldShrink::kByHand,
      .feature = {"resumed"},
      .option = {.name = "--resume-mesh",
                 .help = "Also restore what was saved on this mesh, such as 2x2 or tp=4",
                 .type_name = "MESH",
                 .group = OptionGroup::kRanks,
                 .by_hand = true}}},
    {&Case::seed,
     {.name = "seed",
      .doc = "Everything random follows from it.",
      .draw = kByHandForAll,
      .shrink = FieldShrink::kElsewhere,
      .option = {.name = "--seed",
                 .help = "Seed of initial values, or of the generated cases (default 0)",
                 .type_name = "N",
                 .group = OptionGroup::kPipeline,
                 .of_generated = true},
      .copied = true}},
    {&Case::transport,
     {.name = "transport",
      .doc = "What carries the collectives of the reference pipeline. `gloo`: ranks are processes "
             "(on `cuda`, NCCL carries them). `sim`: ranks are threads of one process, of which "
             "one runs at a time; the order in which ranks run and messages arrive follows from "
             "`seed`. "
             "Memory is not measured there.",
      .names = KnownTransports,
      .draw = kByHand,
      .option = {.name = "--transport",
                 .help = "gloo (default): ranks are processes. sim: ranks are threads of one "
                         "process over a simulated transport, scheduled in an order that follows "
                         "from --seed",
                 .type_name = "NAME",
                 .group = OptionGroup::kRanks,
                 .of_generated = true}}},
    {&Case::strategy,
     {.name = "strategy",
      .doc =
          "How values reach the shards. `rank0-broadcast`: rank 0 reads and broadcasts, and each "
          "rank keeps what it owns. `rank0-scatter`: rank 0 reads and sends each what it owns. "
          "`each-reads-own`: every rank reads its own part. `plain` (every rank reads all) is what "
          "the others are compared with.",
      .names = KnownStrategies,
      .draw = {.how = How::kAnyName},
      .feature = {"strategy", true},
      .option = {.name = "--strategy",
                 .help = "Who reads the checkpoint. rank0-broadcast (default): rank 0 reads and "
                         "broadcasts, each rank keeps its shards. rank0-scatter: rank 0 reads and "
                         "sends each rank its shards. each-reads-own: each rank reads its shards. "
                         "plain: each rank reads everything",
                 .type_name = "NAME",
                 .group = OptionGroup::kPipeline}}},
    {&Case::device,
     {.name = "device",
      .doc = "Whose memory the reference pipeline's tensors are in. `cuda`: a GPU's, over NCCL. "
             "`isolated`: the host's, but closed to everything except the copies that a GPU's "
             "would need, so that a pipeline that accesses device memory directly fails without a "
             "GPU, too. Old files may say `apart`, its former name.",
      .names = KnownDevices,
      .former = {"apart", "isolated"},
      .draw = Sometimes(15, {"isolated"}),
      .shrink = FieldShrink::kToDefault,
      .feature = {"device", true},
      .option = {.name = "--device",
                 .help = "Where tensors live: cpu (default), cuda (over NCCL), or isolated: host "
                         "memory that, like a GPU's, only device copies can reach, for machines "
                         "without a GPU",
                 .type_name = "NAME",
                 .group = OptionGroup::kRanks}}},
    {&Case::optimizer,
     {.name = "optimizer",
      .doc = "For the reference pipeline. `before-sharding`: an optimizer is made of the loaded "
             "model, lets go of its tensors before they are sharded, and is bound to the shards "
             "when they have their values.",
      .names = KnownOptimizers,
      .draw = Sometimes(30, {"before-sharding"}),
      .shrink = FieldShrink::kToDefault,
      .feature = {"optimizer.before-sharding"},
      .option = {.name = "--optimizer",
                 .help = "before-sharding: create the optimizer on the loaded model and bind it "
                         "to the shards when they are ready (default: none)",
                 .type_name = "NAME",
                 .group = OptionGroup::kPipeline}}},
    // Takes as long as five cases that do not train.
    {&Case::steps,
     {.name = "steps",
      .doc = "Optimizer steps of a job that trains; it saves halfway. 0: none.",
      .integers = {0, kStepsMax},
      .schema = R"({"not": {"const": 1}})",
      .draw = Sometimes(12, {2, 2, 3, 4}),
      .shrink = FieldShrink::kByHand,
      .feature = {"trained"},
      .option = {.name = "--steps",
                 .help = "Optimizer steps (default 4 for a subject that trains; 0: none). The "
                         "subject saves halfway and then continues twice: uninterrupted, and from "
                         "what was saved",
                 .type_name = "N",
                 .group = OptionGroup::kFramework}}},
    {&Case::training,
     {.name = "training",
      .doc = "For the reference: how AdamW takes its steps.",
      .draw = kWithAnother,
      .shrink = FieldShrink::kToDefault}},
    {&Case::bucket_bytes,
     {.name = "bucket_bytes",
      .doc = "Staging bytes that a rank may hold at once.",
      .integers = {1, kBytesMax},
      .draw = kByHand,
      .shrink = FieldShrink::kToDefault,
      .option = {.name = "--bucket-bytes",
                 .help = "Staging bytes that a rank may hold at once (default 16 MiB)",
                 .type_name = "BYTES",
                 .group = OptionGroup::kPipeline},
      .copied = true}},
    {&Case::device_bytes,
     {.name = "device_bytes",
      .doc = "For the reference: the memory of a rank's device; 0: no limit.",
      .integers = {0, kBytesMax},
      .shrink = FieldShrink::kToDefault}},
    {&Case::max_file_bytes,
     {.name = "max_file_bytes",
      .doc = "Limit of a saved file; 0: about one file a rank.",
      .integers = {0, kBytesMax},
      .draw = kByHand,
      .shrink = FieldShrink::kToDefault,
      .feature = {"saved in limited files"},
      .copied = true}},
    {&Case::leftovers,
     {.name = "leftovers",
      .doc = "For the reference: whether an earlier job has left a checkpoint where this one "
             "saves, and an incomplete one, because it was killed while saving.",
      .draw = Flag(25),
      .shrink = FieldShrink::kToDefault,
      .feature = {"saved over an earlier checkpoint"}}},
    {&Case::saves,
     {.name = "saves",
      .doc = "For the reference: how often a run that takes no steps saves the same model to the "
             "same path. Saves before the last are in the format of torch.distributed.checkpoint, "
             "but where memory is measured. With faults, it saves once.",
      .integers = {1, 1000},
      .draw = Sometimes(25, {int64_t{2}, int64_t{4}, int64_t{5}}),
      .shrink = FieldShrink::kToDefault,
      .feature = {"saved more than once"}}},
    {&Case::options,
     {.name = "options",
      .doc = "What the subject's OPTIONS declares: name and value.",
      .shrink = FieldShrink::kToDefault,
      .option = {.name = "--option",
                 .help = "Set an option that the subject declares in OPTIONS; may be repeated",
                 .type_name = "NAME=VALUE",
                 .group = OptionGroup::kFramework,
                 .by_hand = true}}},
    {&Case::faults,
     {.name = "faults",
      .doc = "Faults to inject. One that never fires makes the run inconclusive.",
      .draw = kByHand,
      .shrink = FieldShrink::kByHand,
      .option = {.name = "--inject",
                 .help = "Inject a fault, ID@WHERE, such as file/flip@TENSOR:INDEX (see "
                         "'shardproof list faults'); may be repeated",
                 .type_name = "FAULT",
                 .group = OptionGroup::kFaults,
                 .by_hand = true}}},
    {&Case::as_stated,
     {.name = "as_stated",
      .doc = "Whether only the handling of the faults is judged, by what each fault says a correct "
             "job must do (`--judge-faults`).",
      .draw = kWithAnother,
      .shrink = FieldShrink::kElsewhere,
      .feature = {"struck by a fault"},
      .option = {.name = "--judge-faults",
                 .help = "Judge only whether the job handles the faults as it must ('shardproof "
                         "list faults' says how): a job that aborts as it must passes",
                 .group = OptionGroup::kFaults,
                 .former = "--as-stated"}}},
    {&Case::bug,
     {.name = "bug",
      .doc = "Id of a planted bug, or empty.",
      .option = {.name = "--bug",
                 .help = "Plant a known bug (see 'shardproof list bugs'). Without --checkpoint or "
                         "--case, the smallest case that shows the bug is run",
                 .type_name = "ID",
                 .group = OptionGroup::kPipeline,
                 .of_generated = true}}},
    {&Case::host_slack_bytes,
     {.name = "host_slack_bytes",
      .doc = "How much a rank's host peak may exceed its own shards and one bucket.",
      .integers = {0, kBytesMax}}},
    {&Case::deadline_ms,
     {.name = "deadline_ms",
      .doc = "A rank that makes no progress for this long counts as hung.",
      .integers = {1, kDayMs},
      .option = {.name = "--deadline",
                 .help = "A rank that makes no progress for this long counts as hung (default 60)",
                 .type_name = "SECONDS",
                 .group = OptionGroup::kRanks,
                 .by_hand = true}}}};

template <typename Struct>
void Add(const Field<Struct>& field, const std::string& parent, Struct& of,
         std::vector<FieldOfCase>& fields) {
  const auto add = [&](auto member) {
    fields.push_back({parent + field.row.name, &field.row, &(of.*member)});
  };
  std::visit(add, field.member);
}

/// What a case has that says nothing.
const FieldOfCase& Usual(const std::string& path) {
  static Case usual;
  static const std::map<std::string, FieldOfCase> fields = [] {
    std::map<std::string, FieldOfCase> by_path;
    for (FieldOfCase& field : FieldsOf(usual)) by_path.emplace(field.path, std::move(field));
    return by_path;
  }();
  return fields.at(path);
}

}  // namespace

const FieldTable<Case>& CaseFields() { return kCaseFields; }

int64_t LowOf(const FieldRow& row) { return static_cast<int64_t>(row.integers.low); }

int64_t HighOf(const FieldRow& row) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(std::min(row.integers.high, kMax));
}

std::string RealInWords(const RealBounds& bounds) {
  if (bounds.excludes_low) return fmt::format("a finite number above {}", bounds.low);
  if (std::isfinite(bounds.high)) {
    return fmt::format("a number from {} to {}", bounds.low, bounds.high);
  }
  return fmt::format("a number of at least {}", bounds.low);
}

std::vector<FieldOfCase> FieldsOf(Case& test_case) {
  std::vector<FieldOfCase> fields;
  for (const Field<Case>& field : CaseFields()) {
    Add(field, "", test_case, fields);
    if (field.member == Member<Case>(&Case::model)) {
      for (const auto& part : ModelFields()) Add(part, "model/", test_case.model, fields);
    }
    if (field.member == Member<Case>(&Case::training)) {
      for (const auto& part : TrainingFields()) Add(part, "training/", test_case.training, fields);
    }
  }
  return fields;
}

FieldOfCase FieldAt(Case& test_case, const std::string& path) {
  for (FieldOfCase& field : FieldsOf(test_case)) {
    if (field.path == path) return std::move(field);
  }
  SP_CHECK(false, "there is no field %s", path.c_str());
}

bool IsSame(const FieldOfCase& one, const FieldOfCase& other) {
  const auto same = [&](auto* value) { return *value == *std::get<decltype(value)>(other.value); };
  return std::visit(same, one.value);
}

void SetToDefault(const FieldOfCase& field) {
  const auto set = [&](auto* value) {
    *value = *std::get<decltype(value)>(Usual(field.path).value);
  };
  std::visit(set, field.value);
}

}  // namespace shardproof
