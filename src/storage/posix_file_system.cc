// FileSystem by POSIX calls.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "src/storage/file_system.h"

namespace shardproof {
namespace {

std::string ErrnoText() { return std::strerror(errno); }

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() {
    if (is_open()) ::close(fd_);
  }
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_;
};

class PosixMapping : public MappedFile {
 public:
  PosixMapping() = default;
  PosixMapping(const PosixMapping&) = delete;
  PosixMapping& operator=(const PosixMapping&) = delete;
  ~PosixMapping() override {
    if (size_ > 0) ::munmap(address_, size_);
  }
  bool Map(int fd, uint64_t size) {
    void* const address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (address == MAP_FAILED) return false;
    address_ = address;
    size_ = size;
    return true;
  }
  const std::byte* data() const override { return static_cast<const std::byte*>(address_); }
  uint64_t size() const override { return size_; }

 private:
  void* address_ = nullptr;
  uint64_t size_ = 0;
};

class PosixOutputFile : public OutputFile {
 public:
  PosixOutputFile(Descriptor file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}

  Status WriteAt(uint64_t offset, std::string_view bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), offset);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) {
        return Failed(fmt::format("writing {} bytes at offset {} of {}: {}", bytes.size(), offset,
                                  path_, written == 0 ? "nothing was written" : ErrnoText()));
      }
      offset += written;
      bytes.remove_prefix(written);
    }
    return Ok();
  }

  Status Sync() override {
    if (::fsync(file_.get()) != 0)
      return Failed(fmt::format("fsync of {}: {}", path_, ErrnoText()));
    return Ok();
  }

 private:
  Descriptor file_;
  std::string path_;
};

class PosixFileSystem : public FileSystem {
 public:
  Result<std::shared_ptr<const MappedFile>> Map(const std::string& path) override {
    // O_NONBLOCK: a FIFO named like a checkpoint must be refused, not waited for.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat facts {};
    if (!file.is_open() || ::fstat(file.get(), &facts) != 0) {
      return BadInput(fmt::format("{}: cannot be read: {}", path, ErrnoText()));
    }
    if (!S_ISREG(facts.st_mode)) return BadInput(fmt::format("{}: is not a regular file", path));
    const uint64_t size = facts.st_size;
    const auto mapping = std::make_shared<PosixMapping>();
    if (size > 0 && !mapping->Map(file.get(), size)) {
      return Failed(fmt::format("{}: mapping {} bytes: {}", path, size, ErrnoText()));
    }
    return std::shared_ptr<const MappedFile>(mapping);
  }

  Result<std::string> ReadText(const std::string& path, uint64_t bytes_max) override {
    SP_ASSIGN(const auto mapping, Map(path));
    if (mapping->size() > bytes_max) {
      return BadInput(fmt::format("{}: {} bytes, where at most {} are expected", path,
                                  mapping->size(), bytes_max));
    }
    return std::string(reinterpret_cast<const char*>(mapping->data()), mapping->size());
  }

  bool Exists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }

  Result<std::vector<std::string>> List(const std::string& directory) override {
    std::error_code error;
    std::vector<std::string> names;
    std::filesystem::directory_iterator entry(directory, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error) return BadInput(fmt::format("{}: cannot be listed: {}", directory, error.message()));
    std::sort(names.begin(), names.end());
    return names;
  }

  Status Create(const std::string& path, uint64_t size) override {
    const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file.is_open()) return Failed(fmt::format("creating {}: {}", path, ErrnoText()));
    if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0) {
      return Failed(fmt::format("sizing {} to {} bytes: {}", path, size, ErrnoText()));
    }
    return Ok();
  }

  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));  // closed if there is no memory
    if (!file.is_open())
      return Failed(fmt::format("opening {} for writing: {}", path, ErrnoText()));
    return std::unique_ptr<OutputFile>(std::make_unique<PosixOutputFile>(std::move(file), path));
  }

  Status MakeDirectory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) {
      return Failed(fmt::format("making directory {}: {}", path, ErrnoText()));
    }
    return Ok();
  }

  Status SyncDirectory(const std::string& path) override {
    const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory.is_open() || ::fsync(directory.get()) != 0) {
      return Failed(fmt::format("fsync of directory {}: {}", path, ErrnoText()));
    }
    return Ok();
  }

  Status Rename(const std::string& from, const std::string& to) override {
    return RenameWith(from, to, RENAME_NOREPLACE, "renaming");
  }
  Status Replace(const std::string& from, const std::string& to) override {
    return RenameWith(from, to, 0, "replacing by a rename");
  }
  Status Exchange(const std::string& a, const std::string& b) override {
    return RenameWith(a, b, RENAME_EXCHANGE, "exchanging");
  }

  Status RemoveTree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return Failed(fmt::format("removing {}: {}", path, error.message()));
    return Ok();
  }

 private:
  static Status RenameWith(const std::string& from, const std::string& to, unsigned flags,
                           const char* action) {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) != 0) {
      return Failed(fmt::format("{} {} to {}: {}", action, from, to, ErrnoText()));
    }
    return Ok();
  }
};

}  // namespace

std::shared_ptr<FileSystem> MakePosixFileSystem() { return std::make_shared<PosixFileSystem>(); }

}  // namespace shardproof
