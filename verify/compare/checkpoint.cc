#include "verify/compare/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

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

Result<Checkpoint> Checkpoint::Open(const std::string& path, const std::string& below) {
  Checkpoint checkpoint;
  formats::StoredCheckpoint& stored = checkpoint.stored_;
  SP_ASSIGN(stored, formats::OpenStored(path));
  TakeBelow(below, stored.tensors);
  TakeBelow(below, stored.values);
  if (stored.tensors.empty() && stored.values.empty() && !below.empty()) {
    return BadInput(fmt::format("{}: expected names that begin with {}, found none",
                                oracle::Printable(path), oracle::Quote(below)));
  }
  checkpoint.open_->files.resize(checkpoint.stored_.files.size());
  return checkpoint;
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

Reader Checkpoint::Read(const formats::StoredTensor& tensor, uint64_t window_bytes) const {
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
