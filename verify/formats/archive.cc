#include "verify/formats/archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>

#include "verify/formats/crc32.h"
#include "verify/formats/inflate.h"
#include "verify/formats/stored.h"
#include "verify/formats/tar.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

namespace fs = std::filesystem;
using oracle::InputFile;
using oracle::Printable;
using oracle::Quote;
using oracle::Tree;
using oracle::TreeFile;
using FilePointer = std::shared_ptr<const InputFile>;

/// The compressed entries of a ZIP archive, inflated into one file, which is made when one is read.
class DeflatedArchive {
 public:
  /// \returns where it will lie.
  Result<uint64_t> Take(const ZipEntry& entry, const std::string& path) {
    constexpr uint64_t kBytesMax = uint64_t{1} << 62;
    if (entry.length > kBytesMax - bytes_) {
      return BadInput(
          fmt::format("{}: zip, offset {}: expected entries of at most {} bytes in "
                      "all, found more",
                      Printable(path), entry.offset, kBytesMax));
    }
    const uint64_t start = bytes_;
    bytes_ += entry.length;
    return start;
  }

  Result<InflatedFile*> File(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (file_ == nullptr) {
      SP_ASSIGN(file_, InflatedFile::Make(path, bytes_));
    }
    return file_.get();
  }

 private:
  uint64_t bytes_ = 0;
  std::mutex mutex_;
  std::shared_ptr<InflatedFile> file_;
};

/// One of them, inflated when it is read first.
class Deflated {
 public:
  Deflated(std::shared_ptr<DeflatedArchive> archive, uint64_t start, FilePointer file,
           const ZipEntry& entry, std::string path)
      : archive_(std::move(archive)),
        start_(start),
        compressed_{std::move(file), entry.offset, entry.stored, false, entry.length},
        crc_(entry.crc),
        path_(std::move(path)) {}

  Status Read(uint64_t offset, uint64_t length, char* out) {
    const std::lock_guard lock(mutex_);
    SP_ASSIGN(InflatedFile * file, archive_->File(path_));
    if (!inflated_) inflated_ = Inflate(*file);
    SP_TRY(*inflated_);
    return file->bytes().ReadAt(start_ + offset, length, out);
  }

 private:
  Status Inflate(InflatedFile& file) const {
    SP_TRY(file.Add(compressed_, path_, start_));
    return CheckCrc(file.bytes());
  }

  Status CheckCrc(const InputFile& plain) const {
    constexpr uint64_t kPieceBytes = 1u << 20;
    const uint64_t bytes = *compressed_.length;
    uint32_t crc = Crc32OfZeros(bytes);
    std::string piece;
    for (uint64_t at = 0; at < bytes; at += piece.size()) {
      piece.resize(std::min(kPieceBytes, bytes - at));
      SP_TRY(plain.ReadAt(start_ + at, piece.size(), piece.data()));
      crc ^= Crc32Term(piece, bytes - at - piece.size());
    }
    if (crc == crc_) return Ok();
    return BadInput(
        fmt::format("{}: expected CRC-32 {:08x}, found {:08x}", Printable(path_), crc_, crc));
  }

  const std::shared_ptr<DeflatedArchive> archive_;
  const uint64_t start_;
  const Compressed compressed_;
  const uint32_t crc_;
  const std::string path_;
  std::mutex mutex_;
  std::optional<Status> inflated_;
};

bool IsOfCheckpoint(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return IsNamedAsWeights(name) || name == ".metadata" || name.ends_with(".distcp");
}

bool IsOfTorch(const std::vector<ZipEntry>& entries) {
  return std::any_of(entries.begin(), entries.end(), [](const ZipEntry& entry) {
    const std::string file = fs::path(entry.name).filename();
    return (file == "data.pkl" || file == "archive_format") &&
           entry.name.find('/') == entry.name.rfind('/');
  });
}

/// Of a ZIP that holds files; an empty tree of one that torch.save or torch.export wrote, or that
/// is damaged.
Result<Tree> ReadZipOfFiles(const FilePointer& file) {
  Tree tree;
  const auto entries = ReadZip(*file, 0, file->size(), ZipOf::kFiles);
  if (!entries.ok()) {
    const auto as_torch = ReadZip(*file, 0, file->size());
    if (!as_torch.ok() || IsOfTorch(as_torch.value())) return tree;
    return entries.error();  // files that are not read, such as links
  }
  const auto has = [&](const auto& is_one) {
    return std::any_of(entries.value().begin(), entries.value().end(),
                       [&](const ZipEntry& entry) { return is_one(entry.name); });
  };
  if (IsOfTorch(entries.value()) || !(has(IsOfCheckpoint) || has(IsNamedAsArchive))) return tree;
  const auto archive = std::make_shared<DeflatedArchive>();
  for (const ZipEntry& entry : entries.value()) {
    if (entry.name.size() > oracle::kTreeNameBytesMax) {
      return BadInput(fmt::format(
          "{}: zip, offset {}: expected names of at most {} bytes, found {}",
          Printable(file->path()), entry.offset, oracle::kTreeNameBytesMax, entry.name.size()));
    }
    if (!oracle::StaysInside(entry.name)) {
      return BadInput(fmt::format("{}: zip, offset {}: expected names inside the archive, found {}",
                                  Printable(file->path()), entry.offset, Quote(entry.name)));
    }
    if (!entry.is_deflated) {
      tree.emplace(entry.name, PartOf(file, entry.offset, entry.length));
      continue;
    }
    SP_ASSIGN(const uint64_t start, archive->Take(entry, file->path()));
    const auto deflated =
        std::make_shared<Deflated>(archive, start, file, entry, file->path() + "/" + entry.name);
    tree.emplace(entry.name, TreeFile{entry.length, [deflated] {
                                        return [deflated](uint64_t offset, uint64_t length,
                                                          char* out) {
                                          return deflated->Read(offset, length, out);
                                        };
                                      }});
  }
  return tree;
}

/// Without what macOS has added, and without the folders that all of it lies in: those of the path
/// that was packed, down to the one that has the archive's name.
Tree Unfolded(Tree tree, const std::string& path) {
  std::erase_if(tree, [](const auto& entry) {
    const fs::path parts(entry.first);
    return std::any_of(parts.begin(), parts.end(), oracle::IsLeftOut);
  });
  if (tree.empty()) return tree;
  const std::string stem = fs::path(path).filename().string();
  const std::string& first = tree.begin()->first;
  const std::string& last = tree.rbegin()->first;
  size_t inside = 0;  // the folders that all names begin with, since the first and the last do
  for (size_t slash = first.find('/'); slash != std::string::npos;
       slash = first.find('/', inside)) {
    if (last.compare(0, slash + 1, first, 0, slash + 1) != 0) break;
    const std::string folder = first.substr(inside, slash - inside);
    inside = slash + 1;
    if (stem.starts_with(folder + ".")) break;
  }
  if (inside == 0) return tree;
  Tree inner;
  for (auto& [name, file] : tree) inner.emplace(name.substr(inside), std::move(file));
  return inner;
}

/// A file in which a name that another has as its folder; empty if there is none.
std::string FileAndFolder(const Tree& tree) {
  for (const auto& [name, file] : tree) {
    const auto below = tree.lower_bound(name + "/");
    if (below != tree.end() && below->first.starts_with(name + "/")) return name;
  }
  return "";
}

}  // namespace

bool IsNamedAsArchive(const std::string& name) {
  return name.ends_with(".tar") || name.ends_with(".tar.gz") || name.ends_with(".tgz") ||
         name.ends_with(".zip");
}

Status MountArchive(const std::string& path) {
  if (!oracle::IsFile(path) || path.ends_with(".safetensors")) return Ok();
  SP_ASSIGN(FilePointer file, InputFile::Open(path));
  char magic[2] = {};
  SP_TRY(file->ReadAt(0, std::min<uint64_t>(file->size(), sizeof magic), magic));
  if (std::string_view(magic, 2) == "\x1f\x8b") {
    SP_ASSIGN(file, Inflate({.file = file, .bytes = file->size(), .is_gzip = true}, path));
    if (!IsTar(*file)) {
      return BadInput(
          fmt::format("{}: gzip: expected an archive of tar in it, found none", Printable(path)));
    }
  }
  Tree tree;
  if (IsTar(*file)) {
    SP_ASSIGN(tree, ReadTar(file));
  } else if (std::string_view(magic, 2) == "PK") {
    SP_ASSIGN(tree, ReadZipOfFiles(file));
    if (tree.empty()) return Ok();
  } else {
    return Ok();
  }
  if (const std::string name = FileAndFolder(tree); !name.empty()) {
    return BadInput(
        fmt::format("{}: expected files and folders of different names, found {} as both",
                    Printable(path), Quote(name)));
  }
  const bool has_any = std::any_of(tree.begin(), tree.end(),
                                   [](const auto& entry) { return IsOfCheckpoint(entry.first); });
  const auto inner = std::find_if(tree.begin(), tree.end(),
                                  [](const auto& entry) { return IsNamedAsArchive(entry.first); });
  if (!has_any && inner != tree.end()) {
    return BadInput(
        fmt::format("{}: expected a checkpoint in the archive, found the archive {}, "
                    "which is not read inside of another",
                    Printable(path), Quote(inner->first)));
  }
  oracle::Mount(path, Unfolded(std::move(tree), path));
  return Ok();
}

Status MountPlace(const std::string& path) {
  if (oracle::IsMounted(path)) return Ok();
  if (IsUrl(path)) SP_TRY(MountUrl(path));
  return IsOrbax(path) ? MountOrbax(path) : MountArchive(path);
}

}  // namespace shardproof::formats
