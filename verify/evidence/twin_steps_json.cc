// What the plain twin made of a subject's steps.
#include "verify/evidence/records_json.h"

namespace shardproof {

void AddTwinStep(JsonText& out, const TwinStep& step) {
  out.Begin('{').Add("stage", step.stage.text()).Add("compared", step.compared);
  out.Add("exact", step.exact)
      .Add("why_not", step.why_not)
      .Add("left_out", step.left_out)
      .Add("averages", step.averages)
      .Add("adds_otherwise", step.adds_otherwise)
      .Begin("deviations", '[');
  for (const TwinStepDeviation& one : step.deviations) {
    out.Begin('{').Add("kind", one.kind).Add("tensor", one.tensor).Add("ranks", one.ranks);
    if (one.index) out.Add("index", *one.index);
    out.Add("differing", one.differing).Add("expected", one.expected).Add("seen", one.seen);
    out.Add("what", one.what).Add("cause", one.cause).End('}');
  }
  out.End(']').End('}');
}

TwinStep ParseTwinStep(FieldReader& fields) {
  TwinStep step;
  std::string stage;
  fields.Required("stage", stage);
  step.stage = std::move(stage);
  fields.Required("compared", step.compared);
  fields.Required("exact", step.exact);
  fields.Required("why_not", step.why_not);
  fields.Required("left_out", step.left_out);
  fields.Required("averages", step.averages);
  fields.Required("adds_otherwise", step.adds_otherwise);
  ForEach(fields, "deviations", [&](const JsonValue& value, const std::string& pointer) {
    TwinStepDeviation& one = step.deviations.emplace_back();
    FieldReader entry(value, pointer, fields.complaint());
    entry.Required("kind", one.kind);
    entry.Required("tensor", one.tensor);
    entry.Required("ranks", one.ranks, 0, kRecordedSizeMax);
    entry.Optional("index", one.index);
    entry.Required("differing", one.differing);
    entry.Required("expected", one.expected);
    entry.Required("seen", one.seen);
    entry.Required("what", one.what);
    entry.Required("cause", one.cause);
    entry.Finish();
  });
  return step;
}

}  // namespace shardproof
