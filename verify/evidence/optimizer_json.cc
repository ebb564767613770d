// What is on record of an optimizer and of its steps.
#include "verify/evidence/records_json.h"

namespace shardproof {

void AddOptimizerGroups(JsonText& out, const std::vector<OptimizerGroup>& groups) {
  out.Begin("groups", '[');
  for (const OptimizerGroup& group : groups) {
    out.Begin('{').Add("options", group.options).Add("parameters", group.parameters).End('}');
  }
  out.End(']');
}

std::vector<OptimizerGroup> ParseOptimizerGroups(FieldReader& fields) {
  std::vector<OptimizerGroup> groups;
  ForEach(fields, "groups", [&](const JsonValue& value, const std::string& pointer) {
    OptimizerGroup& group = groups.emplace_back();
    FieldReader entry(value, pointer, fields.complaint());
    entry.Required("options", group.options);
    entry.Required("parameters", group.parameters);
    entry.Finish();
  });
  return groups;
}

std::string OptimizerLine(const OptimizerRecord& r) {
  JsonText line = Record("optimizer");
  AddOptimizerGroups(line, r.groups);
  line.Begin("strangers", '[');
  for (const Stranger& one : r.strangers) {
    line.Begin('{').Add("group", one.group).Add("index", one.index).Add("was", one.was);
    line.Add("shape", one.shape).End('}');
  }
  line.End(']').Add("values", r.values);
  if (!r.claims) line.Add("claims", false);
  return line.End('}').text();
}

OptimizerRecord ParseOptimizer(FieldReader& fields) {
  OptimizerRecord r;
  r.groups = ParseOptimizerGroups(fields);
  ForEach(fields, "strangers", [&](const JsonValue& value, const std::string& pointer) {
    Stranger stranger;
    FieldReader entry(value, pointer, fields.complaint());
    entry.Required("group", stranger.group, 0);
    entry.Required("index", stranger.index, 0);
    entry.Required("was", stranger.was);
    entry.Required("shape", stranger.shape, 0, kRecordedSizeMax);
    entry.Finish();
    r.strangers.push_back(std::move(stranger));
  });
  fields.Required("values", r.values);
  fields.Optional("claims", r.claims);
  return r;
}

std::string StepsLine(const StepsRecord& r) {
  JsonText line = Record("steps");
  line.Add("taken", r.taken).Add("since", r.since).Add("held", r.held);
  if (!r.unsure.empty()) line.Add("unsure", r.unsure);
  line.Begin("still", '[');
  for (const StillRecord& one : r.still) {
    line.Begin('{').Add("name", one.name).Add("why", one.why).Add("detail", one.detail);
    line.Add("elements", one.elements);
    if (one.index) line.Add("index", *one.index);
    line.End('}');
  }
  return line.End(']').End('}').text();
}

StepsRecord ParseSteps(FieldReader& fields) {
  StepsRecord r;
  fields.Required("taken", r.taken, 0);
  fields.Required("since", r.since);
  fields.Required("held", r.held, 0);
  fields.Optional("unsure", r.unsure);
  ForEach(fields, "still", [&](const JsonValue& value, const std::string& pointer) {
    StillRecord still;
    FieldReader entry(value, pointer, fields.complaint());
    entry.Required("name", still.name);
    entry.OneOf("why", {"due", "counter", "moment", "undecided"}, still.why);
    entry.Required("detail", still.detail);
    entry.Optional("elements", still.elements);
    entry.Optional("index", still.index);
    entry.Finish();
    r.still.push_back(std::move(still));
  });
  return r;
}

}  // namespace shardproof
