#include "verify/decorators/files.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "src/seam/decorators.h"

namespace shardproof {
namespace {

constexpr uint64_t kLostBytes = 1 << 20;  // at a time
constexpr uint64_t kReplacedBytesMax = 1 << 20;

class UnsyncedFile : public OutputFile {
 public:
  explicit UnsyncedFile(std::unique_ptr<OutputFile> inner) : inner_(std::move(inner)) {}
  ~UnsyncedFile() override {
    for (const Stretch& stretch : unsynced_) Lose(stretch);
  }

  Status WriteAt(uint64_t offset, std::string_view bytes) override {
    if (!unsynced_.empty() && unsynced_.back().end == offset)
      unsynced_.back().end += bytes.size();
    else
      unsynced_.push_back({offset, offset + bytes.size()});
    return inner_->WriteAt(offset, bytes);
  }

  Status Sync() override {
    SP_TRY(inner_->Sync());
    unsynced_.clear();
    return Ok();
  }

 private:
  struct Stretch {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  void Lose(const Stretch& stretch) {
    const std::string lost(std::min(kLostBytes, stretch.end - stretch.begin), '\xff');
    for (uint64_t done = stretch.begin; done < stretch.end; done += lost.size()) {
      const uint64_t length = std::min<uint64_t>(lost.size(), stretch.end - done);
      // What cannot be written is not there either.
      (void)inner_->WriteAt(done, std::string_view(lost).substr(0, length));
    }
  }

  std::unique_ptr<OutputFile> inner_;
  std::vector<Stretch> unsynced_;
};

std::string WithoutSlashAtEnd(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : WithoutSlashAtEnd(path.substr(0, slash + 1));
}

/// What one process does: what it has not synced itself, it cannot count on.
class LossyFiles : public FilesDecorator {
 public:
  using FilesDecorator::FilesDecorator;
  ~LossyFiles() override {
    for (auto move = moves_.rbegin(); move != moves_.rend(); ++move) Undo(*move);
    for (auto& [path, content] : replaced_) PutBack(path, content);
  }

  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    SP_ASSIGN(auto file, inner_->OpenForWrite(path));
    return std::unique_ptr<OutputFile>(std::make_unique<UnsyncedFile>(std::move(file)));
  }

  Status Create(const std::string& path, uint64_t size) override {
    SP_TRY(inner_->Create(path, size));
    names_.insert(path);
    return Ok();
  }

  Status MakeDirectory(const std::string& path) override {
    SP_TRY(inner_->MakeDirectory(path));
    names_.insert(path);
    return Ok();
  }

  Status SyncDirectory(const std::string& path) override {
    SP_TRY(inner_->SyncDirectory(path));
    const std::string directory = WithoutSlashAtEnd(path);
    std::erase_if(names_, [&](const std::string& name) { return DirectoryOf(name) == directory; });
    std::erase_if(moves_, [&](const Move& move) { return DirectoryOf(move.to) == directory; });
    std::erase_if(replaced_,
                  [&](const auto& file) { return DirectoryOf(file.first) == directory; });
    return Ok();
  }

  Status Rename(const std::string& from, const std::string& to) override {
    LoseNamesBelow(from);
    SP_TRY(inner_->Rename(from, to));
    moves_.push_back({from, to, false});
    return Ok();
  }

  Status Replace(const std::string& from, const std::string& to) override {
    std::optional<std::string> before;
    if (auto text = inner_->ReadText(to, kReplacedBytesMax); text.ok()) before = text.value();
    SP_TRY(inner_->Replace(from, to));
    names_.erase(from);
    replaced_.emplace(to, std::move(before));  // of several, what was there before the first
    return Ok();
  }

  Status Exchange(const std::string& a, const std::string& b) override {
    LoseNamesBelow(a);
    SP_TRY(inner_->Exchange(a, b));
    moves_.push_back({a, b, true});
    return Ok();
  }

  Status RemoveTree(const std::string& path) override {
    SP_TRY(inner_->RemoveTree(path));
    std::erase_if(names_,
                  [&](const std::string& name) { return name == path || IsBelow(name, path); });
    // The removal may be durable where the exchange before it is not: then what is gone went by the
    // other name.
    for (const Move& move : moves_) {
      if (move.exchanged && move.from == path) (void)inner_->Rename(move.to, move.from);
    }
    std::erase_if(moves_, [&](const Move& move) { return move.exchanged && move.from == path; });
    return Ok();
  }

 private:
  struct Move {
    std::string from;
    std::string to;
    bool exchanged = false;
  };

  static bool IsBelow(const std::string& name, const std::string& directory) {
    return name.starts_with(directory + "/");
  }

  /// A directory's new name may be durable where the names in it are not.
  void LoseNamesBelow(const std::string& directory) {
    for (const std::string& name : names_) {
      if (IsBelow(name, directory)) (void)inner_->RemoveTree(name);
    }
    std::erase_if(names_, [&](const std::string& name) { return IsBelow(name, directory); });
  }

  void Undo(const Move& move) {
    if (move.exchanged)
      (void)inner_->Exchange(move.from, move.to);
    else
      (void)inner_->Rename(move.to, move.from);
  }

  void PutBack(const std::string& path, const std::optional<std::string>& content) {
    (void)inner_->RemoveTree(path);
    if (!content || !inner_->Create(path, content->size()).ok()) return;
    if (auto file = inner_->OpenForWrite(path); file.ok()) (void)file.value()->WriteAt(0, *content);
  }

  std::set<std::string> names_;  ///< made, and the directory that they are in not synced since
  std::vector<Move> moves_;      ///< likewise
  /// Files that were replaced, likewise, with what was there before, if anything was.
  std::map<std::string, std::optional<std::string>> replaced_;
};

}  // namespace

std::shared_ptr<FileSystem> LoseUnsynced(std::shared_ptr<FileSystem> inner) {
  return std::make_shared<LossyFiles>(std::move(inner));
}

}  // namespace shardproof
