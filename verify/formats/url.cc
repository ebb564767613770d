// Files behind a URL, and tensors of Orbax, through a Python process of its own that has fsspec or
// tensorstore.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "verify/formats/archive.h"
#include "verify/formats/stored.h"
#include "verify/oracle/input_file.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"
#include "verify/process/line_program.h"

namespace shardproof::formats {
namespace {

using oracle::Printable;
using oracle::Quote;

constexpr std::array kUrlKinds = {"s3://", "gs://", "hf://"};
constexpr char kOrbaxPackage[] = "tensorstore";
constexpr uint64_t kFirstBytes = 64u << 10;  // of what is read ahead: twice as much each time
constexpr uint64_t kMostBytes = 8u << 20;
constexpr int64_t kFileBytesMax = int64_t{1} << 50;

std::vector<std::string>& UrlWords() {
  static std::vector<std::string> words;
  return words;
}

std::vector<std::string>& OrbaxWords() {
  static std::vector<std::string> words;
  return words;
}

/// How long an answer may take; SHARDPROOF_URL_SECONDS says otherwise.
std::chrono::seconds Patience() {
  constexpr int kSeconds = 120, kSecondsMax = 86'400;
  const char* said = std::getenv("SHARDPROOF_URL_SECONDS");
  const int seconds = said != nullptr ? std::atoi(said) : 0;
  return std::chrono::seconds(seconds > 0 ? std::min(seconds, kSecondsMax) : kSeconds);
}

struct Listed {
  uint64_t bytes = 0;
  std::string tag;   ///< changes with the content
  size_t index = 0;  ///< by which it is asked for
  bool operator==(const Listed&) const = default;
};
using Listing = std::map<std::string, Listed>;  // by name below the URL; empty: the URL itself

/// The process, and what it found first. What fails once is not asked again.
class Url {
 public:
  Url(std::string url, const std::vector<std::string>& words, std::string package)
      : url_(std::move(url)), words_(words), package_(std::move(package)) {}

  Status Start() {
    std::vector<std::string> words = words_;
    words.push_back(url_);
    auto started = LineProgram::Start(words);
    if (!started.ok()) return Unsupported(Printable(url_) + ": " + started.error().message);
    program_ = std::make_unique<LineProgram>(std::move(started).value());
    SP_ASSIGN(listing_, ReadListing());
    return Ok();
  }

  const Listing& listing() const { return listing_; }
  const std::string& url() const { return url_; }
  const std::string& package() const { return package_; }
  bool Answers() {
    const std::lock_guard lock(mutex_);
    return program_ != nullptr;
  }
  const std::vector<StoredValue>& values() const { return values_; }

  Status Read(const std::string& name, uint64_t offset, uint64_t length, char* out) {
    const std::lock_guard lock(mutex_);
    const auto wrong = [&](const std::string& found) {
      return BadInput(fmt::format("{}: expected {} bytes at offset {}, found {}",
                                  Printable(name.empty() ? url_ : url_ + "/" + name), length,
                                  offset, Printable(found)));
    };
    if (program_ == nullptr) return wrong("that the reading process has ended");
    const size_t index = listing_.at(name).index;
    const Status told = program_->Tell(fmt::format("[{}, {}, {}]", index, offset, length));
    if (!told.ok()) return Gone(wrong(told.error().message));
    const auto line = program_->Hear(Patience());
    if (!line.ok()) return Gone(wrong(line.error().message));
    simdjson::dom::parser parser;
    simdjson::dom::element answer;
    uint64_t bytes = 0;
    if (parser.parse(line.value()).get(answer)) return Gone(wrong("no answer"));
    std::string_view error;
    if (!answer["error"].get(error)) return wrong(std::string(error));
    if (answer["bytes"].get(bytes) || bytes > length) return Gone(wrong("no answer"));
    std::string data(bytes, '\0');
    if (const Status heard = program_->HearBytes(data, Patience()); !heard.ok())
      return Gone(wrong(heard.error().message));
    if (bytes < length) return wrong(fmt::format("{}: it has changed", bytes));
    std::memcpy(out, data.data(), length);
    return Ok();
  }

  Status Check() {
    const std::lock_guard lock(mutex_);
    if (program_ == nullptr) return Ok();  // told already
    if (const Status told = program_->Tell("\"list\""); !told.ok()) {
      return Gone(
          BadInput(fmt::format("{}: it is not known whether it changed while it was read: {}",
                               Printable(url_), Printable(told.error().message))));
    }
    SP_ASSIGN(const Listing now, ReadListing());
    if (now == listing_) return Ok();
    for (const auto& [name, listed] : listing_) {
      const auto found = now.find(name);
      if (found != now.end() && found->second == listed) continue;
      return BadInput(fmt::format("{}: expected nothing to change while it is read, found {} {}",
                                  Printable(url_), Quote(name),
                                  found == now.end() ? "gone" : "changed"));
    }
    return BadInput(fmt::format("{}: expected nothing to change while it is read, found new files",
                                Printable(url_)));
  }

 private:
  Result<Listing> ReadListing() {
    const auto wrong = [&](const std::string& found) {
      return BadInput(fmt::format("{}: cannot be listed: {}", Printable(url_), Printable(found)));
    };
    const auto line = program_->Hear(Patience());
    if (!line.ok()) return Gone(wrong(line.error().message));
    simdjson::dom::parser parser;
    simdjson::dom::element answer;
    simdjson::dom::array files;
    if (parser.parse(line.value()).get(answer)) return wrong("no answer");
    std::string_view text;
    if (!answer["lacks"].get(text)) {
      return Unsupported(fmt::format(
          "{}: needs {}, which {} lacks: {}; {} -m pip install {} mends that", Printable(url_),
          package_, words_[0], Printable(std::string(text)), words_[0], package_));
    }
    if (!answer["error"].get(text)) return wrong(std::string(text));
    if (answer["files"].get(files)) return wrong("no answer");
    simdjson::dom::object values;
    values_.clear();
    if (!answer["texts"].get(values)) {
      for (const auto value : values) {
        if (value.value.get(text)) return wrong("no answer");
        values_.push_back({std::string(value.key), std::string(text)});
      }
    }
    Listing listing;
    size_t index = 0;
    for (const simdjson::dom::element file : files) {
      std::string_view name, tag;
      int64_t bytes = 0;
      if (file.at(0).get(name) || file.at(1).get(bytes) || file.at(2).get(tag) || bytes < 0 ||
          bytes > kFileBytesMax || !(name.empty() || oracle::StaysInside(name))) {
        return wrong("a file that cannot be: " + Quote(std::string(name)));
      }
      listing[std::string(name)] = {static_cast<uint64_t>(bytes), std::string(tag), index++};
    }
    return listing;
  }

  Error Gone(Error error) {
    program_.reset();
    return error;
  }

  const std::string url_;
  const std::vector<std::string> words_;
  const std::string package_;  ///< that reads it
  std::mutex mutex_;
  std::unique_ptr<LineProgram> program_;
  Listing listing_;
  std::vector<StoredValue> values_;  ///< that the answer has besides; none of a URL
};

std::vector<std::shared_ptr<Url>>& Opened() {
  static std::vector<std::shared_ptr<Url>> opened;
  return opened;
}

/// Reads ahead, the more the longer it goes on from where it was.
class Ahead {
 public:
  Ahead(std::shared_ptr<Url> url, std::string name, uint64_t size)
      : url_(std::move(url)), name_(std::move(name)), size_(size) {}

  Status Read(uint64_t offset, uint64_t length, char* out) {
    while (length > 0) {
      if (offset < start_ || offset >= start_ + bytes_.size()) SP_TRY(Fetch(offset, length));
      const uint64_t count = std::min(length, start_ + bytes_.size() - offset);
      std::memcpy(out, bytes_.data() + (offset - start_), count);
      offset += count;
      length -= count;
      out += count;
    }
    return Ok();
  }

 private:
  Status Fetch(uint64_t offset, uint64_t length) {
    const bool goes_on = !bytes_.empty() && offset == start_ + bytes_.size();
    ahead_ = goes_on ? std::min(ahead_ * 2, kMostBytes) : kFirstBytes;
    std::string bytes(std::min(std::min(std::max(ahead_, length), kMostBytes), size_ - offset),
                      '\0');
    Status read = url_->Read(name_, offset, bytes.size(), bytes.data());
    if (!read.ok() && bytes.size() > length && url_->Answers()) {  // what nobody asked for may lack
      bytes.resize(length);
      read = url_->Read(name_, offset, length, bytes.data());
    }
    if (!read.ok()) return read;
    bytes_ = std::move(bytes);
    start_ = offset;
    return Ok();
  }

  std::shared_ptr<Url> url_;
  std::string name_;
  uint64_t size_;
  uint64_t ahead_ = kFirstBytes;
  uint64_t start_ = 0;
  std::string bytes_;
};

/// What the process shows, at its path.
Status MountBy(const std::shared_ptr<Url>& opened) {
  SP_TRY(opened->Start());
  oracle::Tree tree;
  for (const auto& [name, listed] : opened->listing()) {
    const uint64_t bytes = listed.bytes;
    tree.emplace(name,
                 oracle::TreeFile{bytes, [opened, name = name, bytes] {
                                    const auto ahead = std::make_shared<Ahead>(opened, name, bytes);
                                    return [ahead](uint64_t offset, uint64_t length, char* out) {
                                      return ahead->Read(offset, length, out);
                                    };
                                  }});
  }
  oracle::Mount(opened->url(), std::move(tree));
  Opened().push_back(opened);
  return Ok();
}

/// Null: nothing of Orbax is mounted there.
const Url* FindOrbax(const std::string& path) {
  for (const auto& opened : Opened()) {
    if (opened->url() == path && opened->package() == kOrbaxPackage) return opened.get();
  }
  return nullptr;
}

}  // namespace

void ReadUrlsBy(std::vector<std::string> words) { UrlWords() = std::move(words); }
void ReadOrbaxBy(std::vector<std::string> words) { OrbaxWords() = std::move(words); }

bool IsUrl(const std::string& path) {
  return path.find("://") != std::string::npos && !oracle::Exists(path);
}

Status MountUrl(const std::string& url) {
  const bool is_known = std::any_of(kUrlKinds.begin(), kUrlKinds.end(),
                                    [&](const char* kind) { return url.starts_with(kind); });
  if (!is_known || UrlWords().empty()) {
    return Unsupported(
        fmt::format("{}: a URL of a kind that is not read: expected a path, or one of {}; "
                    "download it first",
                    Printable(url), fmt::join(kUrlKinds, ", ")));
  }
  const char* package = url.starts_with("s3")   ? "s3fs"
                        : url.starts_with("hf") ? "huggingface_hub"
                                                : "gcsfs";
  return MountBy(std::make_shared<Url>(url, UrlWords(), package));
}

bool HoldsOrbax(const std::string& directory) {
  for (const char* name : {"/_CHECKPOINT_METADATA", "/manifest.ocdbt", "/_METADATA",
                           "/default/manifest.ocdbt", "/default/_METADATA"}) {
    if (oracle::Exists(directory + name)) return !LooksLikeCheckpoint(directory);
  }
  return false;
}

bool IsOrbax(const std::string& path) {
  return oracle::IsMounted(path) ? FindOrbax(path) != nullptr : HoldsOrbax(path);
}

Status MountOrbax(const std::string& path) {
  if (OrbaxWords().empty())
    return Unsupported(Printable(path) + ": of Orbax, which is not read here");
  return MountBy(std::make_shared<Url>(path, OrbaxWords(), kOrbaxPackage));
}

Result<StoredCheckpoint> OpenOrbax(const std::string& path, Damage* damage) {
  SP_ASSIGN(StoredCheckpoint checkpoint, OpenSafetensors(path, damage));
  checkpoint.format = "Orbax";
  checkpoint.values = FindOrbax(path)->values();
  SP_TRY(SortByName(path, checkpoint));
  return checkpoint;
}

Status CheckUrls() {
  for (const auto& url : Opened()) SP_TRY(url->Check());
  return Ok();
}

}  // namespace shardproof::formats
