#include "verify/formats/inflate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <isa-l/igzip_lib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "verify/oracle/quote.h"

namespace shardproof::formats {
namespace {

using oracle::InputFile;
using oracle::Printable;

constexpr uint64_t kPieceBytes = 1u << 20;

Status WriteAt(int descriptor, uint64_t start, const char* bytes, size_t count) {
  while (count > 0) {
    const ssize_t written = ::pwrite(descriptor, bytes, count, static_cast<off_t>(start));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return BadInput(std::strerror(errno));
    bytes += written;
    start += static_cast<uint64_t>(written);
    count -= static_cast<size_t>(written);
  }
  return Ok();
}

std::atomic<uint64_t> inflated_bytes = 0;  // bytes of all inflated files that are open

/// Half of what is free but for these: what claims more than that is left where it is.
uint64_t RoomIn(int descriptor) {
  struct statvfs disk = {};
  if (::fstatvfs(descriptor, &disk) != 0) return 0;
  return (static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize + inflated_bytes) / 2;
}

class Inflater {
 public:
  /// \param written  counts what is written to the file, whole or not; inflated_bytes have it too.
  Inflater(const Compressed& compressed, const std::string& path, int descriptor, uint64_t start,
           std::atomic<uint64_t>& written)
      : compressed_(compressed),
        path_(path),
        descriptor_(descriptor),
        start_(start),
        written_(written),
        room_(RoomIn(descriptor)),
        in_(std::min(kPieceBytes, compressed.bytes + 1), '\0'),
        out_(std::min(kPieceBytes, compressed.length.value_or(kPieceBytes) + 1), '\0') {
    isal_inflate_init(&state_);
    state_.crc_flag = compressed.is_gzip ? ISAL_GZIP : ISAL_DEFLATE;
  }

  Status Run() {
    while (true) {
      if (state_.avail_in == 0) SP_TRY(ReadMore());
      state_.next_out = reinterpret_cast<uint8_t*>(out_.data());
      state_.avail_out = static_cast<uint32_t>(out_.size());
      const int failed = isal_inflate(&state_);
      if (failed != ISAL_DECOMP_OK) return Wrong("compressed bytes", "others");
      const size_t count = out_.size() - state_.avail_out;
      const uint64_t at = start_ + made_;
      made_ += count;
      written_ += count;
      inflated_bytes += count;
      if (compressed_.length && made_ > *compressed_.length)
        return Wrong(fmt::format("{} bytes", *compressed_.length), "more");
      if (inflated_bytes > room_)
        return Wrong(fmt::format("at most {} bytes in all, half of what is free in TMPDIR", room_),
                     "more");
      if (const Status written = WriteAt(descriptor_, at, out_.data(), count); !written.ok())
        return Wrong("space in TMPDIR", written.error().message);
      const bool is_whole = state_.block_state == ISAL_BLOCK_FINISH;
      if (is_whole && !HasMoreMembers()) break;
      if (!is_whole && count == 0 && state_.avail_in == 0 && read_ == compressed_.bytes)
        return Wrong("more of them", "the end: cut short");
    }
    if (compressed_.length && *compressed_.length != made_)
      return Wrong(fmt::format("{} bytes", *compressed_.length), fmt::format("{}", made_));
    return Ok();
  }

 private:
  Error Wrong(const std::string& expected, const std::string& found) const {
    return BadInput(fmt::format("{}: inflated to {} bytes: expected {}, found {}", Printable(path_),
                                made_, expected, found));
  }

  Status ReadMore() {
    const uint64_t count = std::min<uint64_t>(in_.size(), compressed_.bytes - read_);
    SP_TRY(compressed_.file->ReadAt(compressed_.start + read_, count, in_.data()));
    read_ += count;
    state_.next_in = reinterpret_cast<uint8_t*>(in_.data());
    state_.avail_in = static_cast<uint32_t>(count);
    return Ok();
  }

  /// gzip's files may be several, one after the other, as pigz and bgzip write them.
  bool HasMoreMembers() {
    if (!compressed_.is_gzip) return false;
    if (state_.avail_in == 0 && (read_ == compressed_.bytes || !ReadMore().ok())) return false;
    if (state_.avail_in == 0 || *state_.next_in != 0x1f) return false;
    uint8_t* const next = state_.next_in;
    const uint32_t left = state_.avail_in;
    isal_inflate_reset(&state_);
    state_.next_in = next;
    state_.avail_in = left;
    state_.crc_flag = ISAL_GZIP;
    return true;
  }

  const Compressed& compressed_;
  const std::string& path_;
  const int descriptor_;
  const uint64_t start_;
  std::atomic<uint64_t>& written_;
  const uint64_t room_;
  std::string in_, out_;
  uint64_t read_ = 0;
  uint64_t made_ = 0;
  inflate_state state_;
};

/// A file without a name in TMPDIR. Not every file system makes one at once: NFS, overlays of old
/// kernels. \error kBadInput naming `path`, which is compressed.
Result<int> OpenUnnamed(const std::string& path) {
  std::error_code error;
  const std::string folder = std::filesystem::temp_directory_path(error).string();
  if (error) {
    return BadInput(
        fmt::format("{}: is compressed, and TMPDIR is no directory to inflate it in: {}",
                    Printable(path), error.message()));
  }
  const int unnamed = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (unnamed >= 0) return unnamed;
  if (errno == EOPNOTSUPP || errno == EISDIR) {
    std::string name = folder + "/shardproof-XXXXXX";
    const int named = ::mkostemp(name.data(), O_CLOEXEC);
    if (named >= 0) {
      ::unlink(name.c_str());
      return named;
    }
  }
  return BadInput(fmt::format("{}: is compressed, and cannot be inflated in {}: {}",
                              Printable(path), Printable(folder), std::strerror(errno)));
}

}  // namespace

Result<std::shared_ptr<const InputFile>> Inflate(const Compressed& compressed,
                                                 const std::string& path) {
  SP_ASSIGN(const int descriptor, OpenUnnamed(path));
  std::atomic<uint64_t> written = 0;
  const Status inflated = Inflater(compressed, path, descriptor, 0, written).Run();
  if (!inflated.ok()) {
    ::close(descriptor);
    inflated_bytes -= written;
    return inflated.error();
  }
  SP_ASSIGN(const auto file, InputFile::Of(path, descriptor));
  return std::shared_ptr<const InputFile>(
      file.get(), [file](const InputFile*) { inflated_bytes -= file->size(); });
}

Result<std::shared_ptr<InflatedFile>> InflatedFile::Make(const std::string& path, uint64_t bytes) {
  SP_ASSIGN(const int descriptor, OpenUnnamed(path));
  if (::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    const std::string why = std::strerror(errno);
    ::close(descriptor);
    return BadInput(fmt::format("{}: is compressed, and its {} bytes cannot be inflated: {}",
                                Printable(path), bytes, why));
  }
  std::shared_ptr<InflatedFile> made(new InflatedFile(descriptor));
  SP_ASSIGN(made->file_, InputFile::Of(path, descriptor));
  return made;
}

InflatedFile::~InflatedFile() { inflated_bytes -= written_; }

Status InflatedFile::Add(const Compressed& compressed, const std::string& path, uint64_t start) {
  return Inflater(compressed, path, descriptor_, start, written_).Run();
}

}  // namespace shardproof::formats
