#include "verify/compare/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "verify/maps/model_config.h"
#include "verify/oracle/quote.h"

namespace shardproof::compare {
namespace {

/// Those whose names begin with `below`, without it; in the same order.
template <typename Named>
void TakeBelow(const std::string& below, std::vector<Named>& list) {
  std::erase_if(list, [&](const Named& entry) { return !entry.name.starts_with(below); });
  for (Named& entry : list) entry.name.erase(0, below.size());
}

}  // namespace

std::string MethodOf(const std::string& path) {
  if (path.ends_with(".gguf")) return "if its GGUF holds blocks of codes";
  const Quantisation quantisation = ReadQuantisation(maps::ConfigFolder(path));
  if (quantisation.file.empty()) return "";
  return fmt::format("{} by {}", oracle::Printable(quantisation.method), quantisation.file);
}

Result<Checkpoint> Checkpoint::Open(const std::string& path, const std::string& below) {
  Checkpoint checkpoint;
  formats::StoredCheckpoint& stored = checkpoint.stored_;
  SP_ASSIGN(stored, formats::OpenStored(path));
  checkpoint.open_->files.resize(stored.files.size());
  SP_TRY(checkpoint.Take(path, below));
  return checkpoint;
}

Result<Checkpoint> Checkpoint::OpenDequantised(const std::string& path, const std::string& below) {
  Checkpoint checkpoint;
  SP_ASSIGN(checkpoint.stored_, formats::OpenStored(path));
  checkpoint.open_->files.resize(checkpoint.stored_.files.size());
  SP_TRY(checkpoint.MakeUnits(path));
  SP_TRY(checkpoint.Take(path, below));
  std::map<std::string, quantised::Unit> units;
  for (auto& [name, unit] : checkpoint.units_) {
    if (name.starts_with(below)) units.emplace(name.substr(below.size()), std::move(unit));
  }
  checkpoint.units_ = std::move(units);
  return checkpoint;
}

Status Checkpoint::Take(const std::string& path, const std::string& below) {
  TakeBelow(below, stored_.tensors);
  TakeBelow(below, stored_.values);
  if (stored_.tensors.empty() && stored_.values.empty() && !below.empty()) {
    return BadInput(fmt::format("{}: expected names that begin with {}, found none",
                                oracle::Printable(path), oracle::Quote(below)));
  }
  return Ok();
}

Status Checkpoint::MakeUnits(const std::string& path) {
  const auto open = [this](const formats::StoredTensor& tensor) { return ReadStored(tensor, 0); };
  const Quantisation quantisation = ReadQuantisation(maps::ConfigFolder(path));
  const bool is_unknown =
      !quantisation.file.empty() &&
      (quantisation.schemes.empty() ||
       std::any_of(quantisation.schemes.begin(), quantisation.schemes.end(),
                   [](const auto& scheme) { return scheme.dialect == Dialect::kUnknown; }));
  if (is_unknown) unknown_method_ = fmt::format("{} by {}", quantisation.method, quantisation.file);
  auto found = quantised::FindUnits(stored_, quantisation, open);
  std::erase_if(stored_.tensors, [&](const formats::StoredTensor& tensor) {
    return found.parts.count(tensor.name) + found.beside.count(tensor.name) > 0;
  });
  beside_ = found.beside.size();
  for (quantised::Unit& unit : found.units) {
    if (unit.unknown.empty() && ReadUnit(unit, quantised::Misreading::kNone) == nullptr)
      unit.unknown = "it is not known how its parts belong together";
    const Shape& shape = unit.unknown.empty() ? unit.shape : unit.Part("codes")->shape;
    stored_.tensors.push_back({unit.name, maps::kNumber.name, shape, {}});
    const std::string name = unit.name;
    units_.emplace(name, std::move(unit));
  }
  return formats::SortByName(path, stored_);
}

const formats::StoredTensor* Checkpoint::Find(const std::string& name) const {
  const auto found =
      std::lower_bound(tensors().begin(), tensors().end(), name,
                       [](const formats::StoredTensor& tensor, const std::string& wanted) {
                         return tensor.name < wanted;
                       });
  return found == tensors().end() || found->name != name ? nullptr : &*found;
}

bool Checkpoint::Owns(const formats::StoredTensor& tensor) const {
  const formats::StoredTensor* first = tensors().data();
  return std::less_equal<>()(first, &tensor) && std::less<>()(&tensor, first + tensors().size());
}

const quantised::Unit* Checkpoint::UnitOf(const formats::StoredTensor& tensor) const {
  if (tensor.dtype != maps::kNumber.name) return nullptr;
  const auto found = units_.find(tensor.name);
  return found == units_.end() ? nullptr : &found->second;
}

Reader Checkpoint::ReadUnit(const quantised::Unit& unit, quantised::Misreading misreading) const {
  const auto open = [this](const formats::StoredTensor& part) {
    return ReadStored(part, maps::kWindowBytesMax);
  };
  return quantised::Dequantise(unit, open, misreading);
}

Reader Checkpoint::ReadRearranged(const quantised::Unit& unit, const std::string& part,
                                  const quantised::Rearrangement& rearrangement) const {
  const auto open = [this](const formats::StoredTensor& tensor) { return ReadStored(tensor, 0); };
  return quantised::DequantiseRearranged(unit, open, part, rearrangement);
}

Reader Checkpoint::Read(const formats::StoredTensor& tensor, uint64_t window_bytes) const {
  const quantised::Unit* unit = UnitOf(tensor);
  return unit == nullptr ? ReadStored(tensor, window_bytes)
                         : ReadUnit(*unit, quantised::Misreading::kNone);
}

Reader Checkpoint::ReadStored(const formats::StoredTensor& tensor, uint64_t window_bytes) const {
  const auto open = [this](uint32_t index) -> Result<std::shared_ptr<const oracle::InputFile>> {
    const std::lock_guard lock(open_->mutex);
    std::shared_ptr<const oracle::InputFile> file = open_->files[index].lock();
    if (file == nullptr) {
      SP_ASSIGN(file, oracle::InputFile::Open(stored_.files[index].path));
      open_->files[index] = file;
    }
    return file;
  };
  return maps::ReadStored(open, tensor, window_bytes);
}

Reader Inputs::Open(const maps::View& view, double unit) const {
  const maps::StoredOpener open = [this](const formats::StoredTensor& tensor, uint64_t window) {
    if (a.Owns(tensor)) return a.Read(tensor, window);
    return b.Owns(tensor) ? b.Read(tensor, window) : adapter->Read(tensor, window);
  };
  return maps::Open(view, open, unit);
}

}  // namespace shardproof::compare
