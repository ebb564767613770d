#include "verify/audit/signed_by.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "verify/audit/asked.h"
#include "verify/oracle/quote.h"
#include "verify/oracle/tree.h"

namespace shardproof {

Status HoldSignature(const std::string& python, const std::string& package, const std::string& key,
                     AuditResult& result) {
  using oracle::Printable;
  if (result.seal.empty()) {
    return BadInput(fmt::format("--signed-by: expected a seal of {}, which is signed, found none",
                                Printable(result.path)));
  }
  const std::string signature = result.seal + ".sig";
  if (oracle::IsMounted(result.seal)) {
    result.unjudged.push_back(
        fmt::format("{}: whether it is signed is not known: it lies in an archive or behind a URL; "
                    "unpack or download it first",
                    Printable(result.seal)));
    return Ok();
  }
  std::error_code ignored;
  if (!std::filesystem::exists(signature, ignored)) {
    result.damage.push_back(
        fmt::format("{}: expected the signature of the seal, found none", Printable(signature)));
    return Ok();
  }
  const auto answer =
      Asked({python, package + "/_programs/_signed_by.py", result.seal, signature, key},
            {"signed", "refused"});
  if (answer.contains("signed")) {
    result.remarks.push_back(fmt::format("the seal is signed by {}", Printable(key)));
  } else if (answer.contains("refused")) {
    result.damage.push_back(fmt::format("{}: expected a signature of the seal by {}: {}",
                                        Printable(signature), Printable(key),
                                        Printable(answer["refused"].dump())));
  } else {
    result.unjudged.push_back(fmt::format("{}: whether it is signed is not known: {}",
                                          Printable(result.seal),
                                          Printable(answer["error"].dump())));
  }
  return Ok();
}

}  // namespace shardproof
