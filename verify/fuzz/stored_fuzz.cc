// A fuzz target of libFuzzer over all that reads checkpoints. Any bytes are read as something or
// refused in one line; the sanitizers and these checks say when not. ci/fuzz builds and runs it.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "src/core/strict_json.h"
#include "src/format/value_json.h"
#include "src/pickle/pickle.h"
#include "verify/audit/audit.h"
#include "verify/formats/stored.h"
#include "verify/formats/without_crcs.h"
#include "verify/oracle/tree.h"

namespace shardproof {
namespace {

void Require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

void CheckRefusal(const Error& error) {
  Require(error.code == ErrorCode::kBadInput || error.code == ErrorCode::kUnsupported,
          "a refusal is about the input");
  Require(!error.message.empty() && error.message.find('\n') == std::string::npos,
          "a refusal is one line");
}

void WriteFile(const std::string& path, std::string_view content) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  Require(fd >= 0, "the scratch file can be made");
  Require(::write(fd, content.data(), content.size()) == static_cast<ssize_t>(content.size()),
          "and written");
  ::close(fd);
}

/// A directory of this process, in memory if there is such a place.
const std::string& Scratch() {
  static const std::string path = [] {
    std::string pattern =
        ::access("/dev/shm", W_OK) == 0 ? "/dev/shm/fuzz-XXXXXX" : "/tmp/fuzz-XXXXXX";
    Require(::mkdtemp(pattern.data()) != nullptr, "there is a scratch directory");
    for (const char* folder : {"/dcp", "/trained", "/trained/training", "/sealed", "/ranks",
                               "/universal", "/universal/zero", "/universal/zero/w"}) {
      Require(::mkdir((pattern + folder).c_str(), 0700) == 0, "and one for each format");
    }
    for (const char* folder : {"/trained", "/sealed"}) {
      WriteFile(pattern + folder + "/model.safetensors",
                std::string_view("\x02\0\0\0\0\0\0\0{}", 10));
    }
    return pattern;
  }();
  return path;
}

/// All of it: what is in there, and every element.
void CheckAudit(const std::string& path) {
  oracle::Unmount(path);  // the archive that lay there before
  const auto audited = Audit(path);
  if (!audited.ok()) {
    CheckRefusal(audited.error());
    return;
  }
  for (const std::string& line : audited.value().damage) {
    Require(line.find('\n') == std::string::npos, "damage is one line each");
  }
  (void)AuditText(audited.value(), true);
}

void ReadAsPickle(std::string_view bytes) {
  const auto read = pickle::ReadPickle(std::string(bytes), "fuzz");
  if (!read.ok()) {
    CheckRefusal(read.error());
    return;
  }
  if (const auto text = pickle::TextOf(read.value().root()); !text.ok()) CheckRefusal(text.error());
}

void ReadAsFile(std::string_view bytes, const char* name) {
  const std::string path = Scratch() + "/" + name;
  WriteFile(path, bytes);
  CheckAudit(path);
}

/// Two files of a directory: two bytes say where the first ends and the second begins.
/// \returns the first's content.
std::string_view ReadAsTwo(std::string_view bytes, const std::string& folder, const char* first,
                           const char* second) {
  if (bytes.size() < 2) return {};
  const size_t length =
      static_cast<uint8_t>(bytes[0]) | static_cast<size_t>(static_cast<uint8_t>(bytes[1])) << 8;
  bytes.remove_prefix(2);
  const std::string directory = Scratch() + "/" + folder + "/";
  WriteFile(directory + first, bytes.substr(0, length));
  WriteFile(directory + second, length < bytes.size() ? bytes.substr(length) : "");
  CheckAudit(Scratch() + "/" + folder);
  return bytes.substr(0, length);
}

void ReadAsTrainingState(std::string_view bytes) {
  const std::string_view values = ReadAsTwo(bytes, "trained", "training/values.json",
                                            "training/state-00001-of-00001.safetensors");
  if (values.empty()) return;
  // And as the pipeline reads it.
  const auto document = ParseStrictObject(values, "fuzz");
  if (!document.ok()) return CheckRefusal(document.error());
  for (const auto& [key, value] : document.value().items()) {
    const auto made = PickleOfJson(value, "fuzz");
    if (!made.ok()) {
      CheckRefusal(made.error());
      continue;
    }
    const auto read = pickle::ReadPickle(made.value(), "fuzz");
    Require(read.ok(), "what is made of JSON is a pickle");
    Require(JsonOfValue(read.value().root()).ok(), "and JSON again");
  }
}

void ReadAsSeal(std::string_view bytes) {
  const std::string path = Scratch() + "/sealed/shardproof.seal.json";
  WriteFile(path, bytes);
  auto audited = Audit(Scratch() + "/sealed");
  Require(audited.ok(), "the checkpoint is sound");
  if (const Status held = HoldAgainstSeal(path, audited.value()); !held.ok())
    CheckRefusal(held.error());
  for (const std::string& line : audited.value().damage) {
    Require(line.find('\n') == std::string::npos, "damage is one line each");
  }
}

}  // namespace
}  // namespace shardproof

/// The first byte says as what the others are read: with the CRC-32 of archives if its third bit is
/// set, and else without, or hardly any input would get beyond them.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if ((data[0] & 4) == 0) bytes = shardproof::formats::WithoutCrcs(std::move(bytes));
  switch (data[0] % 4 + ((data[0] & 8) != 0 ? 4 : 0)) {
    case 0:
      shardproof::ReadAsPickle(bytes);
      break;
    case 1:
      shardproof::ReadAsFile(bytes, "one.pt");
      break;
    case 2:
      shardproof::ReadAsFile(bytes, "one.safetensors");
      break;
    case 3:
      shardproof::ReadAsTwo(bytes, "dcp", ".metadata", "__0_0.distcp");
      break;
    case 4:
      shardproof::ReadAsSeal(bytes);
      break;
    case 5:
      shardproof::ReadAsTrainingState(bytes);
      break;
    case 6:
      shardproof::ReadAsTwo(bytes, "ranks", "model_world_size_2_rank_0.pt",
                            "model_world_size_2_rank_1.pt");
      break;
    default:
      shardproof::ReadAsTwo(bytes, "universal", "mp_rank_00_model_states.pt", "zero/w/fp32.pt");
      break;
  }
  return 0;
}
