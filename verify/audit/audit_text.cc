// An audit for people and for machines.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>

#include "src/text/amounts.h"
#include "verify/audit/audit.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

using oracle::Printable;

constexpr size_t kDamageShownMax = 100;
constexpr size_t kTensorsShownMax = 20;
constexpr size_t kValueBytesMax = 100;

std::string Headline(const AuditResult& result) {
  if (result.IsDamaged())
    return fmt::format("NOT SOUND  {}", Count(result.damage.size(), "finding"));
  if (!result.IsSound()) {
    return "INCONCLUSIVE  what could be read is complete; not everything could be read";
  }
  if (result.is_headers_only) {
    return "SOUND, headers only  complete, as its files' headers say; no value was read";
  }
  if (!result.seal.empty()) return "SOUND  complete, with the bytes that were sealed";
  if (result.entries_checked == 0) {
    return "SOUND, structure only  complete and readable; there is no seal to check the bytes "
           "against";
  }
  if (result.entries_unchecked == 0) {
    return "SOUND, structure and CRC-32  complete, and every entry of its archives matches its "
           "CRC-32";
  }
  return fmt::format(
      "SOUND, structure and CRC-32 of {} of {} entries  complete and readable; there is no seal to "
      "check the other bytes against",
      result.entries_checked, result.entries_checked + result.entries_unchecked);
}

std::string NonFinite(const AuditedTensor& tensor) {
  std::vector<std::string> parts;
  if (tensor.nan_count > 0) parts.push_back(fmt::format("{} NaN", tensor.nan_count));
  if (tensor.inf_count > 0) parts.push_back(fmt::format("{} Inf", tensor.inf_count));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string TensorLine(const AuditedTensor& tensor) {
  std::string text = fmt::format("  {}  {} [{}]", Printable(tensor.name), tensor.dtype,
                                 fmt::join(tensor.shape, ", "));
  if (tensor.chunks > 1) text += fmt::format(" in {}", Count(tensor.chunks, "chunk"));
  const std::string non_finite = NonFinite(tensor);
  return text + (non_finite.empty() ? "" : "  " + non_finite) + "\n";
}

std::string ContentText(const AuditResult& result) {
  struct Sum {
    uint64_t tensors = 0, elements = 0, bytes = 0, nan = 0, inf = 0;
  };
  std::map<std::string, Sum> by_dtype;
  size_t name_width = 5;
  for (const AuditedTensor& tensor : result.tensors) {
    Sum& sum = by_dtype[tensor.dtype];
    ++sum.tensors;
    sum.elements += tensor.elements;
    sum.bytes += tensor.bytes;
    sum.nan += tensor.nan_count;
    sum.inf += tensor.inf_count;
    name_width = std::max(name_width, tensor.dtype.size());
  }
  std::string text = fmt::format("  {:<{}}  {:>8}  {:>14}  {:>12}  {:>8}  {:>8}\n", "dtype",
                                 name_width, "tensors", "elements", "size", "NaN", "Inf");
  for (const auto& [dtype, sum] : by_dtype) {
    text += fmt::format("  {:<{}}  {:>8}  {:>14}  {:>12}  {:>8}  {:>8}\n", dtype, name_width,
                        sum.tensors, sum.elements, Bytes(sum.bytes), sum.nan, sum.inf);
  }
  return text;
}

}  // namespace

std::string AuditText(const AuditResult& result, bool all) {
  std::string text = Headline(result) + "\n";
  for (size_t i = 0; i < result.damage.size() && i < kDamageShownMax; ++i)
    text += "  " + result.damage[i] + "\n";
  if (result.damage.size() > kDamageShownMax) {
    text += fmt::format("  and {} more\n", result.damage.size() - kDamageShownMax);
  }
  for (size_t i = 0; i < result.unjudged.size() && i < kDamageShownMax; ++i)
    text += "  not judged: " + result.unjudged[i] + "\n";
  if (result.unjudged.size() > kDamageShownMax) {
    text += fmt::format("  and {} more\n", result.unjudged.size() - kDamageShownMax);
  }
  text += fmt::format("\n{}: {}, {}, {}, {} in {}\n", Printable(result.path), result.format,
                      Count(result.tensors.size(), "tensor"), Count(result.values.size(), "value"),
                      Bytes(result.bytes), Count(result.files.size(), "file"));
  if (!result.tensors.empty()) text += ContentText(result);
  if (!result.quantisation.empty())
    text += fmt::format("quantised: {}\n", Printable(result.quantisation));
  for (const std::string& remark : result.remarks) text += remark + "\n";
  size_t shown = 0, left = 0;
  for (const AuditedTensor& tensor : result.tensors) {
    if (!all && tensor.nan_count + tensor.inf_count == 0) continue;
    if (!all && shown >= kTensorsShownMax) {
      ++left;
      continue;
    }
    if (shown++ == 0) text += all ? "\ntensors:\n" : "\ntensors with NaN or Inf:\n";
    text += TensorLine(tensor);
  }
  if (left > 0) text += fmt::format("  and {} more\n", left);
  if (all && !result.values.empty()) {
    text += "\nvalues:\n";
    for (const AuditedValue& value : result.values) {
      const bool is_long = value.text.size() > kValueBytesMax;
      text += fmt::format("  {} = {}{}\n", Printable(value.name),
                          Printable(value.text.substr(0, kValueBytesMax)), is_long ? "..." : "");
    }
  }
  if (!result.opaque.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, count] : result.opaque) {
      names.push_back(Printable(name) + (count > 1 ? fmt::format(" ({} values)", count) : ""));
    }
    text += fmt::format("unknown classes, kept as data and neither imported nor called: {}\n",
                        fmt::join(names, ", "));
  }
  if (!result.beside.empty()) {
    std::vector<std::string> names;
    for (const FileBeside& file : result.beside) {
      names.push_back(fmt::format("{} ({}, {})", Printable(file.name),
                                  Count(file.tensors.size(), "tensor"),
                                  Count(file.values.size(), "value")));
    }
    text += fmt::format("read too, not part of the model: {}\n", fmt::join(names, ", "));
  }
  if (!result.unread.empty()) {
    text += fmt::format("not read, not part of the checkpoint: {}\n",
                        Printable(fmt::format("{}", fmt::join(result.unread, ", "))));
  }
  if (!result.seal.empty()) text += fmt::format("seal: {}\n", Printable(result.seal));
  return text;
}

nlohmann::json AuditJson(const AuditResult& result) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const AuditedTensor& tensor : result.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"chunks", tensor.chunks},
                       {"elements", tensor.elements},
                       {"bytes", tensor.bytes}});
    if (result.is_headers_only) continue;
    tensors.back().update(
        {{"nan", tensor.nan_count}, {"inf", tensor.inf_count}, {"digest", tensor.digest.Hex()}});
  }
  nlohmann::json values = nlohmann::json::array();
  for (const AuditedValue& value : result.values) {
    values.push_back({{"name", value.name}, {"text", value.text}, {"digest", value.digest.Hex()}});
  }
  nlohmann::json files = nlohmann::json::array();
  for (const AuditedFile& file : result.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}});
    if (!result.is_headers_only) files.back()["digest"] = file.digest.Hex();
  }
  nlohmann::json beside = nlohmann::json::array();
  for (const FileBeside& file : result.beside) {
    beside.push_back(
        {{"name", file.name}, {"tensors", file.tensors.size()}, {"values", file.values.size()}});
  }
  return {{"path", result.path},
          {"format", result.format},
          {"sound", result.IsSound()},
          {"damage", result.damage},
          {"not_judged", result.unjudged},
          {"unknown_classes", result.opaque},
          {"quantisation", result.quantisation},
          {"remarks", result.remarks},
          {"seal", result.seal},
          {"headers_only", result.is_headers_only},
          {"files", std::move(files)},
          {"beside", std::move(beside)},
          {"unread", result.unread},
          {"bytes", result.bytes},
          {"tensors", std::move(tensors)},
          {"values", std::move(values)},
          {"crc32", {{"checked", result.entries_checked}, {"absent", result.entries_unchecked}}}};
}

}  // namespace shardproof
