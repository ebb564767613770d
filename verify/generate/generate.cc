#include "verify/generate/generate.h"

#include <fmt/format.h>

#include <string>

#include "verify/case/fields.h"
#include "verify/generate/draw.h"
#include "verify/generate/draw_by_hand.h"

namespace shardproof {
namespace {

void SetTo(const FieldDraw::Value& drawn, const FieldOfCase& field) {
  const auto set = [&](const auto& value) {
    *std::get<std::decay_t<decltype(value)>*>(field.value) = value;
  };
  std::visit(set, drawn);
}

void DrawField(const FieldOfCase& field, Case& made, const GenerateOptions& options) {
  const FieldDraw& row = field.row->draw;
  switch (row.how) {
    case FieldDraw::How::kNever:
    case FieldDraw::How::kWithAnother:
      return;
    case FieldDraw::How::kFlag:
      *std::get<bool*>(field.value) = draw::Chance(row.percent);
      return;
    case FieldDraw::How::kValue:
      if (!draw::Chance(row.percent)) return;
      return SetTo(row.values.size() == 1 ? row.values[0] : draw::OneOf(row.values), field);
    case FieldDraw::How::kAnyName:
      return SetTo(std::string(draw::OneOf(field.row->names())), field);
    case FieldDraw::How::kByHand:
      return draw::DrawnByHand().at(field.path)(made, options);
  }
}

Case DrawCase(const GenerateOptions& options) {
  Case made;
  for (const FieldOfCase& field : FieldsOf(made)) {
    if (options.subject != kReference && !field.row->draw.for_subjects) continue;
    if (field.path.starts_with("training/") && made.steps == 0) continue;
    DrawField(field, made, options);
  }
  return made;
}

}  // namespace

Case GenerateCase(const GenerateOptions& options, uint64_t seed, uint64_t index) {
  Case made = draw::CaseOf([&options] { return DrawCase(options); }, seed, index);
  made.why = fmt::format("case {} of seed {}", index, seed);
  return made;
}

}  // namespace shardproof
