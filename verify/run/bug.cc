#include "verify/run/bug.h"

#include "verify/run/registry.h"

namespace shardproof {
namespace {

Registry<PlantedBug>& Bugs() {
  static Registry<PlantedBug> bugs("planted bug");
  return bugs;
}

}  // namespace

const std::vector<KindOfMistake>& KnownKinds() {
  static const std::vector<KindOfMistake> kinds = {
      {"MAT-allranks", "every rank makes a full copy of the model"},
      {"MAT-clobber", "materialising also replaces tensors that have their value"},
      {"MAT-commit", "placeholders that will be overwritten take memory first"},
      {"MAT-metaleft", "a tensor stays on meta"},
      {"MAT-skipinit", "what the checkpoint lacks is never initialised, or by the wrong rule"},
      {"MAT-uninit", "memory that nobody wrote counts as loaded"},
      {"BC-skip", "one of two ways of loading forgets to broadcast something"},
      {"SH-attr", "a parameter is made anew and loses what hung on it"},
      {"SH-chunkrule", "two parts of the code cut a tensor by two rules"},
      {"SH-padleak", "padding is seen, or real elements are taken for it"},
      {"SH-scalar", "tensors of no dimension are sharded like others"},
      {"SH-strided", "a dimension that is sharded twice is put together in the other order"},
      {"DT-castearly", "a cast that some ranks, some tensors or some moments should not see"},
      {"DT-intfloat", "integers are kept in a float"},
      {"DT-nocheck", "copying converts, and nobody compares dtypes"},
      {"KEY-nonstrict", "keys without a partner are passed over"},
      {"KEY-prefix", "names of wrappers, prefixes and ties are handled on one side only"},
      {"OPT-group", "options of parameter groups are not restored"},
      {"OPT-order", "state meets another parameter than its own, or none"},
      {"OPT-step", "moments are restored and the step is not, or the other way round"},
      {"RNG-reseed", "a restored random state is overwritten"},
      {"OFF-nosync", "a copy is read before it has arrived"},
      {"OFF-stalecopy", "of several copies of a value one is refreshed"},
      {"OFF-swapidx", "the buffer in flight is used again"},
      {"CK-closure", "what is written later is not what was to be saved"},
      {"CK-commitearly", "a checkpoint is declared whole before its data are"},
      {"CK-common", "what differs by rank is saved as common to all"},
      {"CK-dedup", "what differs by rank is taken for replicas"},
      {"CK-notracker", "the pointer to the latest checkpoint is not moved"},
      {"CK-noverify", "what is read is not checked"},
      {"CK-optonly", "only what the optimizer owns is saved"},
      {"CK-swallow", "an error of one writer is told to nobody"},
      {"FMT-endian", "bytes are swapped for some dtypes only"},
      {"FMT-header", "header lengths at the edge, sizes that count another thing"},
      {"FMT-view", "the bytes of a view are not its elements"},
      {"COL-bitflip", "a word changes on the way"},
      {"COL-order", "ranks make collectives in different orders"},
      {"COL-rank0", "a collective in a branch that one rank takes"},
      {"COL-rankcond", "who loads is decided before ranks are known"},
      {"COL-root", "the root of the world in place of the group's, or the other way round"},
      {"COL-skew", "one rank's long work outlasts the others' patience"},
      {"COL-stall", "peers wait without a deadline"},
      {"MEM-pow2", "staging is rounded up to a power of two"},
      {"MEM-stageall", "everything is staged at once"},
  };
  return kinds;
}

const std::vector<PlantedBug>& AllBugs() { return Bugs().All(); }
Result<PlantedBug> FindBug(const std::string& id) { return Bugs().Find(id); }
BugRegistration::BugRegistration(PlantedBug bug) { Bugs().Add(std::move(bug)); }

}  // namespace shardproof
