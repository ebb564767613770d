#include "verify/dcp_forms/damage_target.h"

#include <iterator>

namespace shardproof::dcp_forms {

Py& State(Py& object) { return object.items[1]; }

Py& EntryIn(Py& metadata, const Target& target) {
  return State(metadata).At("state_dict_metadata").At(target.entry.key);
}

std::vector<Py>& ChunksIn(Py& metadata, const Target& target) {
  return State(EntryIn(metadata, target)).At("chunks").items;
}

size_t IndexIn(Py& metadata, const Target& target) {
  const std::vector<Py>& items = State(metadata).At("storage_data").items;
  size_t at = 0;
  for (size_t before = target.number;; at += 2) {
    Py index = items[at];
    if (State(index).At("fqn").text == target.entry.key && before-- == 0) return at;
  }
}

Py& PlaceIn(Py& metadata, const Target& target) {
  return State(metadata).At("storage_data").items[IndexIn(metadata, target) + 1];
}

Field AnyField(Py& metadata, const Target& target) {
  Py& root = State(metadata);
  Py& entry = State(EntryIn(metadata, target));
  Py& chunk = State(ChunksIn(metadata, target)[target.number]);
  Py& index = State(root.At("storage_data").items[IndexIn(metadata, target)]);
  Py& place = State(PlaceIn(metadata, target));
  const Field fields[] = {{&root, "state_dict_metadata"},
                          {&root, "storage_data"},
                          {&entry, "properties"},
                          {&entry, "size"},
                          {&entry, "chunks"},
                          {&chunk, "offsets"},
                          {&chunk, "sizes"},
                          {&index, "fqn"},
                          {&place, "relative_path"},
                          {&place, "offset"},
                          {&place, "length"}};
  return fields[target.draws.Below(std::size(fields))];
}

Py& AnyNumber(Py& metadata, const Target& target) {
  Py& place = State(PlaceIn(metadata, target));
  const uint64_t way = target.draws.Below(target.entry.shape.empty() ? 2 : 5);
  if (way < 2) return place.At(way == 0 ? "offset" : "length");
  Py& entry = State(EntryIn(metadata, target));
  Py& chunk = State(ChunksIn(metadata, target)[target.number]);
  Py& size = way == 2 ? entry.At("size") : chunk.At(way == 3 ? "offsets" : "sizes");
  return size.items[1].items[target.draws.Below(target.entry.shape.size())];
}

void EraseField(const Field& field) {
  std::vector<Py>& items = field.dict->items;
  for (size_t i = 0; i < items.size(); i += 2) {
    if (items[i].text != field.name) continue;
    items.erase(items.begin() + static_cast<ptrdiff_t>(i),
                items.begin() + static_cast<ptrdiff_t>(i) + 2);
    return;
  }
}

void Shift(Py& size, const Target& target, int64_t by) {
  std::vector<Py>& numbers = size.items[1].items;
  if (numbers.empty()) return numbers.push_back(Py::Integer(1));
  numbers[target.draws.Below(numbers.size())].integer += by;
}

size_t EntryOf(const std::string& archive, const std::string& name) {
  return archive.rfind("PK\x01\x02", archive.rfind("/" + name));
}

std::string AnyMember(const Target& target) { return target.draws.Flag() ? "data.pkl" : "data/0"; }

End EndOf(const std::string& archive) {
  const size_t end = archive.size() - 22;
  const bool is_wide = archive.compare(end - 20, 4, "PK\x06\x07") == 0;
  if (!is_wide) return {end + 10, end + 12, end + 16};
  const size_t record = archive.rfind("PK\x06\x06");
  return {record + 32, record + 40, record + 48};
}

}  // namespace shardproof::dcp_forms
