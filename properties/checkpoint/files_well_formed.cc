// checkpoint.files_well_formed: what is saved has the form that other readers of it count on.
#include <fmt/format.h>

#include "verify/verdict/expectation.h"
#include "verify/verdict/select.h"

namespace shardproof::checkpoint::files_well_formed {
namespace {

/// Of the data in a safetensors file; that of its tensors follows from their order.
constexpr uint64_t kDataAlignment = 8;

class FormCheck {
 public:
  FormCheck(const Evidence& evidence, const PhaseEvidence& phase, const CheckpointRecord& saved,
            Judgement& judgement)
      : evidence_(evidence), phase_(phase), saved_(saved), judgement_(judgement) {}

  void Run() {
    for (const auto& [name, form] : saved_.files) {
      CheckAlignment(name, form);
      if (IsReference(evidence_)) CheckLimit(name, form);
    }
    if (IsReference(evidence_) && saved_.indexed) CheckTotal();
  }

 private:
  /// Adapters are in files of their own, which PEFT reads without an index and whole.
  static bool IsOfAdapter(const std::string& name) { return name.starts_with("adapter/"); }

  void Wrong(const std::string& kind, const std::string& what, uint64_t expected,
             const std::string& seen, const Facts& facts = {},
             const Finding::InMessage& in_message = {}) {
    Finding finding = FindingAt(phase_, Stage::kSaved, "", kind, {}, what, facts);
    finding.expected = std::to_string(expected);
    finding.seen = seen;
    finding.in_message = in_message;
    judgement_.Found(std::move(finding));
  }

  void CheckAlignment(const std::string& name, const FileForm& form) {
    judgement_.Compared();
    const uint64_t past = form.data_start % kDataAlignment;
    if (past == 0) return;
    Wrong("unaligned",
          fmt::format(
              "{}: its data begins at byte {}: expected a multiple of {}, which a header is padded "
              "to, so that a mapped file can be read in place",
              name, form.data_start, kDataAlignment),
          form.data_start - past + kDataAlignment, std::to_string(form.data_start), {.file = name},
          {.expected = false});
  }

  void CheckLimit(const std::string& name, const FileForm& form) {
    const uint64_t limit = evidence_.test_case.max_file_bytes;
    if (limit == 0 || IsOfAdapter(name)) return;
    judgement_.Compared();
    if (form.data_bytes <= limit || form.tensors == 1) return;
    Wrong("too-large",
          fmt::format("{}: holds {} bytes of {} tensors: expected at most max_file_bytes, {}, in a "
                      "file of more than one tensor",
                      name, form.data_bytes, form.tensors, limit),
          limit, std::to_string(form.data_bytes), {.file = name, .limit_bytes = limit});
  }

  void CheckTotal() {
    uint64_t total = 0;
    for (const auto& [name, form] : saved_.files) {
      if (!IsOfAdapter(name)) total += form.data_bytes;
    }
    judgement_.Compared();
    if (saved_.total_size == total) return;
    const std::string found = saved_.total_size ? std::to_string(*saved_.total_size) : "none";
    Wrong("total",
          fmt::format(
              "the index has total_size {}: expected {}, the bytes of all tensors that it lists",
              found, total),
          total, found);
  }

  const Evidence& evidence_;
  const PhaseEvidence& phase_;
  const CheckpointRecord& saved_;
  Judgement& judgement_;
};

/// In a saved checkpoint the data of every safetensors file begins at a multiple of 8 bytes; of
/// the reference, no file of more than one tensor has more bytes than the case allows, and the
/// index has the sum of all tensors' bytes.
void Check(const Evidence& evidence, Judgement& judgement) {
  if (const std::string* why = evidence.WhyCannot("saved_files")) {
    judgement.Skipped("the saved files were not read: " + *why);
    return;
  }
  if (PhaseToJudge(evidence, Phase::kValues, judgement) == nullptr) return;
  if (!evidence.oracle.saved.contains(Phase::kValues)) {
    judgement.Inconclusive("phase values left no saved checkpoint");
  }
  for (const auto& [of, saved] : SavedModels(evidence.oracle)) {
    const PhaseEvidence* phase = evidence.Phase(of);
    if (!saved->error.empty() || phase == nullptr) {
      judgement.Inconclusive(
          fmt::format("the checkpoint of phase {} cannot be judged: {}", NameOf(of),
                      phase == nullptr ? "there is no evidence of it" : saved->error));
      continue;
    }
    FormCheck(evidence, *phase, *saved, judgement).Run();
    // A model without a tensor that is saved, or evidence from before files were on record.
    if (saved->files.empty() && !saved->indexed)
      judgement.Skipped("no file of a tensor is on record");
  }
}

const PropertyRegistration kRegistration{{
    .id = "checkpoint.files_well_formed",
    .claim = "The files of a saved checkpoint are aligned, within the size limit, and as "
             "large as the index says.",
    .reads = {{{Phase::kValues}, {}, "saved checkpoints"}},
    .tolerance = "exact",
    .source = "safetensors: serialize pads the header to 8 bytes; huggingface_hub: "
              "split_torch_state_dict_into_shards (max_shard_size, metadata.total_size)",
    .killed_by = {"checkpoint.header_not_padded", "checkpoint.total_size_of_files",
                  "checkpoint.file_limit_in_elements"},
    .check = Check,
    .capabilities = {"save"},
}};

}  // namespace
}  // namespace shardproof::checkpoint::files_well_formed
