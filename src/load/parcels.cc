#include "src/load/parcels.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "src/core/check.h"

namespace shardproof {
namespace {

uint64_t ElementBytes(const SlotKeys& load) { return c10::elementSize(load.slot->spec.dtype); }

/// Calls visit(global begin, length) for the stretches of a slot's global image that make local
/// bytes [begin, end) of `shard`, in local order.
template <typename Visit>
void VisitStretches(const Shard& shard, uint64_t element, uint64_t begin, uint64_t end,
                    Visit visit) {
  uint64_t local = 0;
  for (const ElementRun& run : shard.runs) {
    const uint64_t length = run.length * element;
    const uint64_t first = begin > local ? (begin - local) / length : 0;
    for (uint64_t i = first; i < run.count && local + i * length < end; ++i) {
      const uint64_t from = std::max(begin, local + i * length);
      const uint64_t to = std::min(end, local + (i + 1) * length);
      visit((run.start + i * run.stride) * element + (from - local - i * length), to - from);
    }
    local += length * run.count;
    if (local >= end) return;
  }
}

/// Stretches by where they begin in the image: pieces of several boxes are read in turns.
using CopyOrder = std::vector<std::tuple<uint64_t, const std::byte*, uint64_t>>;

/// Calls visit(bytes in the mapping, length) for the stretches of keys that make bytes
/// [begin, begin + length) of a slot's global image.
template <typename Visit>
void VisitKeys(const SlotKeys& load, const Source& source, uint64_t begin, uint64_t length,
               Visit visit) {
  const uint64_t end = begin + length;
  auto part = std::upper_bound(load.parts.begin(), load.parts.end(), begin,
                               [](uint64_t at, const KeyPart& p) { return at < p.start; });
  if (part != load.parts.begin()) --part;
  for (; part != load.parts.end() && part->start < end; ++part) {
    const uint64_t from = std::max(begin, part->start);
    const uint64_t to = std::min(end, part->start + part->length);
    if (from >= to) continue;
    const SourceTensor& tensor = source.tensors.at(part->key);
    if (tensor.IsOneStretch()) {
      visit(source.BytesOf(tensor) + (from - part->start), to - from);
      continue;
    }
    CopyOrder order;
    tensor.VisitStretches(from - part->start, to - part->start,
                          [&](uint64_t at, int64_t file, uint64_t offset, uint64_t count) {
                            order.push_back({at, source.BytesAt(file, offset), count});
                          });
    std::sort(order.begin(), order.end());
    for (const auto& [at, bytes, count] : order) visit(bytes, count);
  }
}

}  // namespace

void CopyFromSource(const SlotKeys& load, const Shard& shard, uint64_t begin, uint64_t end,
                    const Source& source, Device& device, std::byte* to) {
  VisitStretches(shard, ElementBytes(load), begin, end, [&](uint64_t start, uint64_t length) {
    VisitKeys(load, source, start, length, [&](const std::byte* bytes, uint64_t count) {
      device.Copy(to, bytes, count);
      to += count;
    });
  });
}

const std::byte* StretchOfSource(const SlotKeys& load, const Shard& shard, uint64_t begin,
                                 uint64_t end, const Source& source) {
  const std::byte* first = nullptr;
  uint64_t seen = 0;
  bool whole = true;
  VisitStretches(shard, ElementBytes(load), begin, end, [&](uint64_t start, uint64_t length) {
    if (!whole) return;
    VisitKeys(load, source, start, length, [&](const std::byte* bytes, uint64_t count) {
      if (first == nullptr) first = bytes;
      whole = whole && bytes == first + seen;
      seen += count;
    });
  });
  return whole ? first : nullptr;
}

std::vector<Parcel> PlanParcels(const KeyMatch& keys, const Source& source,
                                const ShardsOf& shards_of, uint64_t capacity) {
  SP_CHECK(capacity > 0);
  std::vector<const SlotKeys*> loads;
  for (const SlotKeys& load : keys.loads) loads.push_back(&load);
  const auto place = [&](const SlotKeys* load) {
    const SourceTensor& first = source.tensors.at(load->parts.front().key);
    return std::tie(first.file, first.offset, load->slot->spec.name);
  };
  std::sort(loads.begin(), loads.end(),
            [&](const SlotKeys* a, const SlotKeys* b) { return place(a) < place(b); });

  std::vector<Parcel> parcels;
  for (const SlotKeys* load : loads) {
    const uint64_t element = ElementBytes(*load);
    uint64_t most = 0;
    for (const Shard& shard : shards_of(*load->slot)) {
      most = std::max(most, shard.ElementCount() * element);
    }
    for (uint64_t done = 0; done < most;) {
      if (parcels.empty() || parcels.back().bytes + element > capacity) parcels.emplace_back();
      Parcel& parcel = parcels.back();
      const uint64_t room =
          std::max(element, (capacity - std::min(capacity, parcel.bytes)) / element * element);
      const uint64_t length = std::min(most - done, room);
      parcel.windows.push_back({load, done, done + length});
      parcel.bytes += length;
      done += length;
    }
  }
  return parcels;
}

}  // namespace shardproof
