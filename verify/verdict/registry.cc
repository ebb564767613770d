// The registry of properties: filled before main by the files of properties/, read-only afterwards.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "verify/verdict/property.h"

namespace shardproof {
namespace {

// A function-local static: registrations run in no particular order before main.
std::vector<Property>& Registry() {
  static std::vector<Property> properties;
  return properties;
}

bool IdLess(const Property& a, const Property& b) { return a.id < b.id; }

std::vector<std::string> KnownIds() {
  std::vector<std::string> ids;
  for (const Property& property : AllProperties()) ids.push_back(property.id);
  return ids;
}

}  // namespace

bool Property::Reads(Phase phase) const {
  return std::any_of(reads.begin(), reads.end(), [&](const Reading& reading) {
    return std::find(reading.phases.begin(), reading.phases.end(), phase) != reading.phases.end();
  });
}

std::vector<std::string> PhasesOf(const Reading& reading) {
  if (reading.phases == EveryPhase()) return {"every phase"};
  std::vector<std::string> names;
  for (const Phase phase : reading.phases) names.push_back(NameOf(phase));
  return names;
}

std::vector<std::string> StagesOf(const Reading& reading) {
  std::vector<std::string> names;
  for (const Stage stage : reading.stages) names.push_back(NameOf(stage));
  return names;
}

std::string ReadsInWords(const Property& property) {
  std::string words;
  for (const Reading& reading : property.reads) {
    std::vector<std::string> what = StagesOf(reading);
    if (!reading.records.empty()) what.push_back(reading.records);
    words += fmt::format("{}{}: {}", words.empty() ? "" : "; ", fmt::join(PhasesOf(reading), ", "),
                         fmt::join(what, ", "));
  }
  return words;
}

const std::vector<Property>& AllProperties() { return Registry(); }

const std::vector<Capability>& KnownCapabilities() {
  static const std::vector<Capability> capabilities = {
      {"plain", "loads by a second strategy, \"plain\", in which every rank reads everything"},
      {"identity", "keeps the parameter objects that the model was built with"},
      {"host_bound", "needs no more host memory than its own shards and one bucket"},
      {"collectives", "issues its collectives through torch.distributed, where they are recorded"},
      {"keys", "says which keys were missing and which unexpected"},
      {"save", "saves a checkpoint and restores it"},
      {"train", "takes case.steps optimizer steps, and resumes from what it saves halfway"},
      {"gradients", "steps with the gradients of case.loss, which it scales or clips at most"},
      {"updates", "changes parameters by its optimizer alone"},
      {"rng", "restores the random number generator's state when it resumes training"},
      {"saved_files", "saves files that the verifier reads by itself"},
      {"lost_ranks",
       "names, in the errors of the other ranks, a rank that is lost or fails and the operation "
       "under way"},
  };
  return capabilities;
}

PropertyRegistration::PropertyRegistration(Property property) {
  std::vector<Property>& all = Registry();
  const auto place = std::lower_bound(all.begin(), all.end(), property, IdLess);
  if (place != all.end() && place->id == property.id) {
    const std::string text = fmt::format("two properties have the id {}: \"{}\" and \"{}\"\n",
                                         property.id, place->claim, property.claim);
    std::fputs(text.c_str(), stderr);
    std::abort();
  }
  all.insert(place, std::move(property));
}

Result<std::vector<const Property*>> SelectProperties(const std::vector<std::string>& ids) {
  std::vector<const Property*> selected;
  for (const Property& property : AllProperties()) {
    if (ids.empty() || std::find(ids.begin(), ids.end(), property.id) != ids.end()) {
      selected.push_back(&property);
    }
  }
  const std::vector<std::string> known = KnownIds();
  std::vector<std::string> unknown;
  for (const std::string& id : ids) {
    if (!std::binary_search(known.begin(), known.end(), id)) unknown.push_back(id);
  }
  if (!unknown.empty()) {
    return BadInput(fmt::format("no such property: {}; known are: {}", fmt::join(unknown, ", "),
                                fmt::join(known, ", ")));
  }
  return selected;
}

}  // namespace shardproof
