// Real directories: read into memory before a save, written out for a load to look at.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "verify/crash_states/disk.h"
#include "verify/crash_states/link_target.h"

namespace shardproof::crash {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::string OtherKind(const std::string& path) {
  return path + ": expected a regular file, a directory or a symbolic link, found something else";
}

Result<std::string> ReadWhole(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat facts {};
  if (file.get() < 0 || ::fstat(file.get(), &facts) != 0) {
    return BadInput(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  }
  if (!S_ISREG(facts.st_mode)) return Unsupported(OtherKind(path));
  std::string bytes(facts.st_size, '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::pread(file.get(), bytes.data() + done, bytes.size() - done, done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return BadInput(fmt::format("{}: cannot be read at offset {}: {}", path, done,
                                  count == 0 ? "the file ends" : std::strerror(errno)));
    }
    done += count;
  }
  return bytes;
}

Status WriteContent(const FileContent& content, const std::string& path) {
  const auto failed = [&](const char* action) {
    return Failed(fmt::format("{} {}: {}", action, path, std::strerror(errno)));
  };
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) return failed("creating");
  if (::ftruncate(file.get(), content.size()) != 0) return failed("sizing");
  for (const FileContent::Extent& extent : content.extents()) {
    for (int64_t done = 0; done < extent.length;) {
      const ssize_t count =
          ::pwrite(file.get(), extent.data() + done, extent.length - done, extent.start + done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return failed("writing");
      done += count;
    }
  }
  return Ok();
}

}  // namespace

Result<Disk> Disk::Read(const std::string& directory) {
  Disk disk;
  Met met;
  std::error_code error;
  const std::string root = fs::canonical(directory, error).string();
  if (error) return BadInput(fmt::format("{}: cannot be read: {}", directory, error.message()));
  SP_TRY(disk.ReadInto(kRootInode, root, "", met));
  return disk;
}

Status Disk::ReadInto(Inode inode, const std::string& root, const std::string& place, Met& met) {
  const std::string directory = place.empty() ? root : root + "/" + place;
  std::error_code error;
  std::set<std::string> names;  // in order, so that inodes are numbered alike each time
  fs::directory_iterator entry(directory, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.insert(entry->path().filename().string());
  }
  if (error) return BadInput(fmt::format("{}: cannot be read: {}", directory, error.message()));
  for (const std::string& name : names) {
    const std::string path = directory + "/" + name;
    struct stat facts {};
    if (::lstat(path.c_str(), &facts) != 0) {
      return BadInput(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
    }
    if (S_ISDIR(facts.st_mode)) {
      const Inode child = Add(Kind::kDirectory);
      SetName({inode, name, kNoInode, child});
      SP_TRY(ReadInto(child, root, Joined(place, name), met));
    } else if (S_ISLNK(facts.st_mode)) {
      const std::string target = fs::read_symlink(path, error).string();
      if (error) return BadInput(fmt::format("{}: cannot be read: {}", path, error.message()));
      auto told = TellTarget(root, place, target);
      if (!told.ok()) return Unsupported(path + ": " + told.error().message);
      const Inode child = Add(Kind::kLink);
      ToChange(child).target = std::move(told).value();
      SetName({inode, name, kNoInode, child});
    } else if (S_ISREG(facts.st_mode)) {
      const auto [known, is_new] = met.try_emplace({facts.st_dev, facts.st_ino}, inode_count());
      if (is_new) {
        Add(Kind::kFile);
        SP_ASSIGN(std::string bytes, ReadWhole(path));
        const int64_t size = static_cast<int64_t>(bytes.size());
        FileContent content;
        content.Write(0, std::make_shared<const std::string>(std::move(bytes)), 0, size);
        SetContent(known->second, std::move(content));
      }
      SetName({inode, name, kNoInode, known->second});
    } else {
      return Unsupported(OtherKind(path));
    }
  }
  return Ok();
}

Status Disk::WriteTo(const std::string& directory) const {
  return WriteFrom(kRootInode, directory, "");
}

Status Disk::WriteFrom(Inode inode, const std::string& root, const std::string& place) const {
  for (const auto& [name, child] : Names(inode)) {
    const std::string below = Joined(place, name);
    const std::string path = root + "/" + below;
    if (IsDirectory(child)) {
      if (::mkdir(path.c_str(), 0777) != 0) {
        return Failed(fmt::format("making directory {}: {}", path, std::strerror(errno)));
      }
      SP_TRY(WriteFrom(child, root, below));
    } else if (!IsLink(child)) {
      SP_TRY(WriteContent(Content(child), path));
    } else if (::symlink(TargetIn(place, Target(child)).c_str(), path.c_str()) != 0) {
      return Failed(fmt::format("making link {}: {}", path, std::strerror(errno)));
    }
  }
  return Ok();
}

}  // namespace shardproof::crash
