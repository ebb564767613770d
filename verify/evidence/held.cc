#include "verify/evidence/held.h"

#include "verify/evidence/records_json.h"

namespace shardproof {
namespace {

void ParseHost(FieldReader& fields, HostBytes& host) {
  fields.Required("anonymous_bytes", host.anonymous);
  fields.Required("shared_bytes", host.shared);
  fields.Required("file_bytes", host.file);
}

/// Calls read(entry) for each object of an array, which may be absent.
template <typename Read>
void ForEachObject(FieldReader& fields, const char* name, Read read) {
  if (!fields.Known(name)) return;
  ForEach(fields, name, [&](const JsonValue& value, const std::string& pointer) {
    FieldReader entry(value, pointer, fields.complaint());
    read(entry);
    entry.Finish();
  });
}

HeldPeak ParsePeak(FieldReader& fields) {
  HeldPeak peak;
  fields.Required("anonymous_bytes", peak.anonymous);
  fields.Required("shared_bytes", peak.shared);
  fields.Required("time_ms", peak.time_ms);
  fields.Required("interval_ms", peak.interval_ms);
  fields.Optional("stacks_bytes", peak.stacks_bytes);
  if (fields.Known("stacks")) {
    ForEach(fields, "stacks", [&](const JsonValue& value, const std::string& pointer) {
      ParseStrings(value, pointer, fields.complaint(), peak.stacks.emplace_back());
    });
  }
  return peak;
}

}  // namespace

std::string HeldRecord::Key() const { return stage + (step > 0 ? "@" + std::to_string(step) : ""); }

HeldRecord ParseHeld(FieldReader& fields) {
  HeldRecord r;
  fields.Required("stage", r.stage);
  fields.Optional("step", r.step, 0);
  fields.Required("time_ms", r.time_ms);
  ParseHost(fields, r.host);
  fields.Optional("locked_bytes", r.locked);
  fields.Optional("pinned_bytes", r.pinned);
  if (fields.Known("proportional")) {
    if (const auto value = fields.Object("proportional")) {
      FieldReader entry(*value, fields.PointerTo("proportional"), fields.complaint());
      ParseHost(entry, r.proportional.emplace());
      entry.Finish();
    }
  }
  if (fields.Known("peak")) {
    if (const auto value = fields.Object("peak")) {
      FieldReader entry(*value, fields.PointerTo("peak"), fields.complaint());
      r.peak = ParsePeak(entry);
      entry.Finish();
    }
  }
  ForEachObject(fields, "tensors", [&](FieldReader& entry) {
    HeldTensors& one = r.tensors.emplace_back();
    entry.OneOf("of", {"parameter", "buffer", "gradient", "optimizer", "other"}, one.of);
    entry.Required("device", one.device);
    entry.Required("bytes", one.bytes);
    entry.Optional("anonymous_bytes", one.anonymous);
  });
  ForEachObject(fields, "devices", [&](FieldReader& entry) {
    HeldDevice& one = r.devices.emplace_back();
    entry.Required("device", one.device);
    entry.Required("allocated_bytes", one.allocated);
    entry.Required("reserved_bytes", one.reserved);
    entry.Required("peak_allocated_bytes", one.peak_allocated);
    entry.Required("peak_reserved_bytes", one.peak_reserved);
  });
  ForEachObject(fields, "who", [&](FieldReader& entry) {
    HeldBy& one = r.who.emplace_back();
    entry.OneOf("by", {"holder", "python", "device"}, one.by);
    entry.Required("what", one.what);
    entry.Required("bytes", one.bytes);
    entry.Required("count", one.count);
    entry.Required("stack", one.stack);
  });
  return r;
}

}  // namespace shardproof
