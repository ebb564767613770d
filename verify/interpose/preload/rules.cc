#include "verify/interpose/preload/rules.h"

#include <nccl.h>
#include <pthread.h>
#include <stdlib.h>

#include "verify/interpose/preload/decide.h"
#include "verify/interpose/preload/log.h"
#include "verify/interpose/preload/points.h"

namespace shardproof::interpose {
namespace {

/// Not destroyed: threads may still call when the process ends.
const std::vector<Rule>* all = nullptr;

void Watch(Function function) { watched[static_cast<int>(function)] = true; }

/// What this build has: its nccl.h may be older than the rule language.
constexpr bool IsBuilt(Function function) {
  switch (function) {
#define CUDA_FUNCTION(name, ...) case Function::name:
#define DRIVER_FUNCTION(name, ...) case Function::name:
#define NCCL_FUNCTION(name, ...) case Function::name:
#include "verify/interpose/functions.inc"
#include "verify/interpose/preload/since.h"
    case Function::kPosix:
      return true;
    default:
      return false;
  }
}

void WatchFor(const Rule& rule) {
  if (!IsBuilt(rule.function)) {
    Refuse("rule %.200s: this library was built with NCCL %d, which has no %s", rule.text.c_str(),
           NCCL_VERSION_CODE, InfoOf(rule.function).name);
  }
  if (rule.function == Function::kPosix) return EnablePoint(rule);
  Watch(rule.function);
  if (rule.act == Act::kFlip) {
    Watch(Function::ncclGroupStart);
    Watch(Function::ncclGroupEnd);
  }
  if (rule.act == Act::kAsyncError) {
    Watch(Function::ncclCommGetAsyncError);
    Watch(Function::ncclCommDestroy);
    Watch(Function::ncclCommAbort);
  }
}

[[gnu::constructor]] void ReadRules() {
  const char* text = ::getenv(kRulesVariable);
  if (text == nullptr) return;
  Result<std::vector<Rule>> read = ParseRules(text);
  if (!read.ok()) Refuse("%s: %s", kRulesVariable, read.error().message.c_str());
  OpenLog();
  all = new std::vector<Rule>(std::move(read).value());
  ::pthread_atfork(nullptr, nullptr, CountAnew);
  for (const Rule& rule : *all) WatchFor(rule);
}

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> none;
  return all != nullptr ? *all : none;
}

}  // namespace shardproof::interpose
