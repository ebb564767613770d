#include "verify/interpose/environment.h"

#include <unistd.h>

#include "verify/interpose/fiu_command.h"
#include "verify/interpose/fiu_preload.h"
#include "verify/interpose/rule.h"
#include "verify/interpose/rule_words.h"

namespace shardproof::interpose {
namespace {

/// The loader splits LD_PRELOAD there, and has no way to quote.
Status CheckPreloadable(const std::string& path) {
  if (path.find_first_of(" :") == path.npos) return Ok();
  return BadInput(Shown(path) + " cannot be preloaded: expected a path without blanks and colons");
}

Status CheckLibrary(const std::string& path) {
  SP_TRY(CheckPreloadable(path));
  if (::access(path.c_str(), R_OK) == 0) return Ok();
  return Unsupported(Shown(path) +
                     " is not there: it is built where the torch that is built against has CUDA");
}

std::string Preload(const std::vector<std::string>& libraries, const std::string& preloaded) {
  std::string out;
  for (const std::string& library : libraries) out += (out.empty() ? "" : ":") + library;
  return preloaded.empty() ? out : out + ":" + preloaded;
}

}  // namespace

const std::vector<std::string>& FiuFolders() {
  static const std::vector<std::string> folders = {"/usr/lib/fiu", "/usr/local/lib/fiu"};
  return folders;
}

Result<Environment> InterposeEnvironment(const Interposed& interposed) {
  SP_ASSIGN(const std::vector<Rule> rules, ParseRules(interposed.rules));
  SP_TRY(CheckLibrary(interposed.library));
  if (!interposed.log.starts_with('/')) {
    return BadInput("the log " + Shown(interposed.log) +
                    ": expected an absolute path, since the program may go elsewhere");
  }
  std::vector<std::string> libraries = {interposed.library};
  for (const Rule& rule : rules) {
    if (rule.point.empty()) continue;
    SP_ASSIGN(const FiuPreload preload, FindFiuPreload(interposed.fiu_folders));
    Status has_point = CheckPoint(preload, rule.point);
    if (!has_point.ok()) return has_point.error().While("rule " + Shown(rule.text));
    if (libraries.size() == 1) libraries.push_back(preload.posix);
  }
  return Environment{{"LD_PRELOAD", Preload(libraries, interposed.preloaded)},
                     {kRulesVariable, interposed.rules},
                     {kLogVariable, interposed.log}};
}

Result<Environment> FiuEnvironment(const std::string& text, const std::string& preloaded,
                                   const std::vector<std::string>& folders) {
  SP_ASSIGN(const FiuCommand command, ParseFiuCommand(text));
  SP_ASSIGN(const FiuPreload preload, FindFiuPreload(folders));
  SP_TRY(CheckPoint(preload, command.point));
  Environment environment = {{"LD_PRELOAD", Preload({preload.run, preload.posix}, preloaded)},
                             {"FIU_ENABLE", command.text}};
  if (!command.seed.empty()) environment["FIU_PRNG_SEED"] = command.seed;
  return environment;
}

}  // namespace shardproof::interpose
