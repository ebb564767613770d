#include "src/stage/stage.h"

namespace shardproof {

std::string ListStages() {
  std::string list;
  for (const StageFacts& facts : kStages) {
    list += list.empty() ? "" : ", ";
    list += facts.name;
  }
  return list;
}

}  // namespace shardproof
