#include "verify/cli/command.h"
#include "verify/engine/twin.h"
#include "verify/fault/fault_descriptions.h"
#include "verify/launch/subject.h"
#include "verify/oracle/twin.h"
#include "verify/process/scratch_directory.h"

namespace shardproof {
namespace {

Result<oracle::Twin> RunTwinOf(const Case& test_case, const std::string& checkpoint,
                               const ExecuteOptions& options) {
  SP_ASSIGN(const auto scratch, ScratchDirectory::Make());
  const auto launcher = MakeSubjectLauncher(PythonFrom(options));
  return RunTwin(test_case, checkpoint, scratch->path(), {}, *launcher);
}

}  // namespace

ReportParts PartsOfReport() { return {.run_twin = RunTwinOf, .describe_faults = DescribeFaults}; }

}  // namespace shardproof
