// What damage of a DCP checkpoint is done to, and where that stands in it.
#pragma once

#include <string>
#include <vector>

#include "verify/dcp_forms/dcp_forms.h"

namespace shardproof::dcp_forms {

/// What an edit is done to, and what chooses between ways to do it.
struct Target {
  Entry& entry;
  size_t number;  ///< of the item
  Draws& draws;

  Item& item() const { return entry.items[number]; }
  int64_t Elements() const {
    int64_t elements = 1;
    for (const int64_t size : item().sizes) elements *= size;
    return elements;
  }
};

/// A dict with a field that is asked of it.
struct Field {
  Py* dict;
  const char* name;
};

/// The record that says how many entries there are, how long they are and where they begin: where
/// each of these stands.
struct End {
  size_t count, bytes, offset;
};

/// An object's state.
Py& State(Py& object);
Py& EntryIn(Py& metadata, const Target& target);
std::vector<Py>& ChunksIn(Py& metadata, const Target& target);
/// Where the chunk's index stands among storage_data, key by key; its place follows it.
size_t IndexIn(Py& metadata, const Target& target);
Py& PlaceIn(Py& metadata, const Target& target);
Field AnyField(Py& metadata, const Target& target);
/// A number of a place or, where it has a dim, of the tensor or the chunk.
Py& AnyNumber(Py& metadata, const Target& target);
void EraseField(const Field& field);
/// Offsets or sizes of a chunk, other by one in one of its dims; of a scalar, of a dim more.
void Shift(Py& size, const Target& target, int64_t by);
/// Where in an archive's directory the entry of a member begins.
size_t EntryOf(const std::string& archive, const std::string& name);
/// A member that a tensor needs.
std::string AnyMember(const Target& target);
End EndOf(const std::string& archive);

}  // namespace shardproof::dcp_forms
