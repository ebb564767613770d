#include "src/checkpoint/digest_files.h"

namespace shardproof {
namespace {

class DigestedFile : public OutputFile {
 public:
  DigestedFile(std::unique_ptr<OutputFile> inner, std::string path,
               std::shared_ptr<std::map<std::string, Digest>> sums)
      : inner_(std::move(inner)), path_(std::move(path)), sums_(std::move(sums)) {}

  Status WriteAt(uint64_t offset, std::string_view bytes) override {
    SP_TRY(inner_->WriteAt(offset, bytes));
    sp_summary sum{};
    const sp_run run{offset, bytes.size(), 1, 0, bytes.data(), 0};
    sp_digest_runs(&sum, &run, 1, SP_NO_FLOAT);
    (*sums_)[path_] += Digest(sum.digest);
    return Ok();
  }
  Status Sync() override { return inner_->Sync(); }

 private:
  std::unique_ptr<OutputFile> inner_;
  const std::string path_;
  const std::shared_ptr<std::map<std::string, Digest>> sums_;
};

}  // namespace

Result<std::unique_ptr<OutputFile>> DigestedFiles::OpenForWrite(const std::string& path) {
  SP_ASSIGN(auto file, inner_->OpenForWrite(path));
  return std::unique_ptr<OutputFile>(std::make_unique<DigestedFile>(std::move(file), path, sums_));
}

Status DigestedFiles::Create(const std::string& path, uint64_t size) {
  SP_TRY(inner_->Create(path, size));
  sums_->erase(path);
  return Ok();
}

Status DigestedFiles::RemoveTree(const std::string& path) {
  SP_TRY(inner_->RemoveTree(path));
  std::erase_if(*sums_, [&](const auto& sum) {
    return sum.first == path || sum.first.starts_with(path + "/");
  });
  return Ok();
}

Digest DigestedFiles::Of(const std::string& path) const {
  const auto found = sums_->find(path);
  return found == sums_->end() ? Digest() : found->second;
}

}  // namespace shardproof
