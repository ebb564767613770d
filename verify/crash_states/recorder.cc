#include "verify/crash_states/recorder.h"

#include <filesystem>
#include <utility>

namespace shardproof::crash {
namespace {

namespace fs = std::filesystem;

std::string Absolute(const std::string& path) {
  std::string normal = fs::absolute(path).lexically_normal().string();
  while (normal.size() > 1 && normal.ends_with('/')) normal.pop_back();
  return normal;
}

bool IsAtOrBelow(const std::string& path, const std::string& directory) {
  return path == directory || path.starts_with(directory + "/");
}

struct Removal {
  std::string path;
  bool is_directory = false;
};

/// What removing `path` does, one by one: remove_all goes through a directory in the order in which
/// it is read, empties what is a directory before it goes on, and follows no link.
void ListRemovals(const std::string& path, std::vector<Removal>& removals) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (error || type == fs::file_type::not_found) return;
  if (type == fs::file_type::directory) {
    fs::directory_iterator entry(path, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      ListRemovals(entry->path().string(), removals);
    }
  }
  removals.push_back({path, type == fs::file_type::directory});
}

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found;
}

}  // namespace

Recording::Recording(const std::string& root) : root_(Absolute(root)) {}

Result<std::vector<FileOperation>> Recording::Operations() const {
  const std::lock_guard lock(mutex_);
  if (!crossing_.empty()) {
    return Unsupported(crossing_ + ": expected a move within " + root_ + ", or outside of it");
  }
  return operations_;
}

std::optional<std::string> Recording::Below(const std::string& path) const {
  const std::string normal = Absolute(path);
  if (normal == root_) return "";
  const std::string prefix = root_ == "/" ? root_ : root_ + "/";
  if (!normal.starts_with(prefix)) return std::nullopt;
  return normal.substr(prefix.size());
}

void Recording::Note(FileOperation operation) {
  operation.sequence = static_cast<int64_t>(operations_.size());
  operations_.push_back(std::move(operation));
}

void Recording::NoteMove(OperationKind kind, int64_t rank, const std::string& from,
                         const std::string& to) {
  const auto below_from = Below(from);
  const auto below_to = Below(to);
  if (below_from.has_value() != below_to.has_value()) crossing_ = from + " to " + to;
  if (!below_from || !below_to) return;
  Note({.rank = rank, .kind = kind, .path = *below_from, .other = *below_to});
  for (OpenPath* open : open_) {
    if (!*open) continue;
    if (IsAtOrBelow(**open, *below_from)) {
      **open = *below_to + (*open)->substr(below_from->size());
    } else if (IsAtOrBelow(**open, *below_to)) {
      if (kind == OperationKind::kExchange) {
        **open = *below_from + (*open)->substr(below_to->size());
      } else {
        open->reset();  // was replaced
      }
    }
  }
}

void Recording::NoteUnlink(int64_t rank, const std::string& path) {
  Note({.rank = rank, .kind = OperationKind::kUnlink, .path = path});
  for (OpenPath* open : open_) {
    if (*open == path) open->reset();
  }
}

class RecordedFile : public OutputFile {
 public:
  RecordedFile(std::unique_ptr<OutputFile> inner, int64_t rank,
               std::shared_ptr<Recording> recording, const std::string& path)
      : inner_(std::move(inner)), rank_(rank), recording_(std::move(recording)) {
    path_ = recording_->Below(path);
    recording_->open_.insert(&path_);
  }
  ~RecordedFile() override {
    const std::lock_guard lock(recording_->mutex_);
    recording_->open_.erase(&path_);
  }

  Status WriteAt(uint64_t offset, std::string_view bytes) override {
    const std::lock_guard lock(recording_->mutex_);
    SP_TRY(inner_->WriteAt(offset, bytes));
    if (path_) {
      recording_->Note({.rank = rank_,
                        .kind = OperationKind::kWrite,
                        .path = *path_,
                        .offset = static_cast<int64_t>(offset),
                        .bytes = std::string(bytes)});
    }
    return Ok();
  }

  Status Sync() override {
    const std::lock_guard lock(recording_->mutex_);
    if (Status synced = inner_->Sync(); !synced.ok()) {
      sync_failed_ = true;
      return synced;
    }
    if (path_ && !sync_failed_) {
      recording_->Note({.rank = rank_, .kind = OperationKind::kSyncFile, .path = *path_});
    }
    return Ok();
  }

 private:
  std::unique_ptr<OutputFile> inner_;
  const int64_t rank_;
  const std::shared_ptr<Recording> recording_;
  Recording::OpenPath path_;
  bool sync_failed_ = false;
};

class RecordedFiles : public FileSystem {
 public:
  RecordedFiles(std::shared_ptr<FileSystem> inner, int64_t rank,
                std::shared_ptr<Recording> recording)
      : inner_(std::move(inner)), rank_(rank), recording_(std::move(recording)) {}

  Result<std::shared_ptr<const MappedFile>> Map(const std::string& path) override {
    return inner_->Map(path);
  }
  Result<std::string> ReadText(const std::string& path, uint64_t bytes_max) override {
    return inner_->ReadText(path, bytes_max);
  }
  bool Exists(const std::string& path) override { return inner_->Exists(path); }
  Result<std::vector<std::string>> List(const std::string& directory) override {
    return inner_->List(directory);
  }

  Status Create(const std::string& path, uint64_t size) override {
    const std::lock_guard lock(recording_->mutex_);
    SP_TRY(inner_->Create(path, size));
    Note(OperationKind::kCreate, path);
    if (size > 0) Note(OperationKind::kTruncate, path, static_cast<int64_t>(size));
    return Ok();
  }

  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    const std::lock_guard lock(recording_->mutex_);
    SP_ASSIGN(auto file, inner_->OpenForWrite(path));
    return std::unique_ptr<OutputFile>(
        std::make_unique<RecordedFile>(std::move(file), rank_, recording_, path));
  }

  Status MakeDirectory(const std::string& path) override {
    const std::lock_guard lock(recording_->mutex_);
    SP_TRY(inner_->MakeDirectory(path));
    Note(OperationKind::kMakeDirectory, path);
    return Ok();
  }

  Status SyncDirectory(const std::string& path) override {
    const std::lock_guard lock(recording_->mutex_);
    SP_TRY(inner_->SyncDirectory(path));
    Note(OperationKind::kSyncDirectory, path);
    return Ok();
  }

  Status Rename(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(recording_->mutex_);
    SP_TRY(inner_->Rename(from, to));
    recording_->NoteMove(OperationKind::kRename, rank_, from, to);
    return Ok();
  }

  Status Replace(const std::string& from, const std::string& to) override {
    const std::lock_guard lock(recording_->mutex_);
    SP_TRY(inner_->Replace(from, to));
    recording_->NoteMove(OperationKind::kRename, rank_, from, to);
    return Ok();
  }

  Status Exchange(const std::string& a, const std::string& b) override {
    const std::lock_guard lock(recording_->mutex_);
    SP_TRY(inner_->Exchange(a, b));
    recording_->NoteMove(OperationKind::kExchange, rank_, a, b);
    return Ok();
  }

  Status RemoveTree(const std::string& path) override {
    const std::lock_guard lock(recording_->mutex_);
    std::vector<Removal> removals;
    ListRemovals(Absolute(path), removals);
    const Status removed = inner_->RemoveTree(path);
    for (const Removal& removal : removals) {
      const auto below = recording_->Below(removal.path);
      if (!below || IsThere(removal.path)) continue;
      if (removal.is_directory)
        Note(OperationKind::kRemoveDirectory, removal.path);
      else
        recording_->NoteUnlink(rank_, *below);
    }
    return removed;
  }

 private:
  void Note(OperationKind kind, const std::string& path, int64_t size = 0) {
    const auto below = recording_->Below(path);
    if (below) recording_->Note({.rank = rank_, .kind = kind, .path = *below, .size = size});
  }

  const std::shared_ptr<FileSystem> inner_;
  const int64_t rank_;
  const std::shared_ptr<Recording> recording_;
};

std::shared_ptr<FileSystem> RecordFiles(std::shared_ptr<FileSystem> inner, int64_t rank,
                                        std::shared_ptr<Recording> recording) {
  return std::make_shared<RecordedFiles>(std::move(inner), rank, std::move(recording));
}

}  // namespace shardproof::crash
