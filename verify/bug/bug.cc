#include "verify/bug/bug.h"

#include "verify/registry/registry.h"

namespace shardproof {
namespace {

Registry<PlantedBug>& Bugs() {
  static Registry<PlantedBug> bugs("planted bug");
  return bugs;
}

}  // namespace

const std::vector<PlantedBug>& AllBugs() { return Bugs().All(); }
Result<PlantedBug> FindBug(const std::string& id) { return Bugs().Find(id); }
BugRegistration::BugRegistration(PlantedBug bug) { Bugs().Add(std::move(bug)); }

}  // namespace shardproof
