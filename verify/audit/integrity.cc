#include "verify/audit/integrity.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "src/text/amounts.h"
#include "verify/audit/sha256.h"
#include "verify/evidence/line_file.h"
#include "verify/oracle/header.h"
#include "verify/oracle/input_file.h"
#include "verify/oracle/json.h"
#include "verify/oracle/listing.h"
#include "verify/oracle/quote.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;
using oracle::Printable;
using oracle::Quote;

constexpr char kName[] = "integrity.json";
constexpr char kAlgorithm[] = "sha256";
constexpr uint64_t kListBytesMax = 256u << 20;
constexpr uint64_t kSumBytes = 1u << 20;

Result<std::string> SumOf(const std::string& path) {
  SP_ASSIGN(const auto file, oracle::InputFile::Open(path));
  Sha256 sum;
  std::string piece;
  for (uint64_t at = 0; at < file->size(); at += piece.size()) {
    piece.resize(std::min(kSumBytes, file->size() - at));
    SP_TRY(file->ReadAt(at, piece.size(), piece.data()));
    sum.Add(piece.data(), piece.size());
  }
  return sum.Hex();
}

/// The sums of these files in a directory, on as many threads as there are cores.
std::vector<Result<std::string>> SumsOf(const std::string& directory,
                                        const std::vector<std::string>& names) {
  std::vector<Result<std::string>> sums(names.size(), std::string());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads(std::clamp<size_t>(std::thread::hardware_concurrency(), 1,
                                                      std::max<size_t>(names.size(), 1)));
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (size_t i = next++; i < names.size(); i = next++)
        sums[i] = SumOf(directory + "/" + names[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sums;
}

/// Of each file that it lists, the sum. \error kUnsupported: by another algorithm.
Result<std::map<std::string, std::string>> Read(const std::string& path) {
  SP_ASSIGN(const std::string text, oracle::ReadWholeFile(path, kListBytesMax));
  simdjson::dom::parser parser;
  SP_ASSIGN(const simdjson::dom::object root, oracle::ParseObject(parser, path, text));
  SP_ASSIGN(const auto members, oracle::Members(path, root));
  simdjson::dom::object files;
  bool has_files = false;
  for (const oracle::JsonMember& member : members) {
    if (member.key == "algorithm") {
      SP_ASSIGN(const auto algorithm, oracle::AsString(path, "algorithm", member.value));
      if (algorithm != kAlgorithm) {
        return Unsupported(fmt::format("{}: algorithm {}, which is not known", Printable(path),
                                       Quote(std::string(algorithm))));
      }
    }
    if (member.key == "files") has_files = !member.value.get_object().get(files);
  }
  if (!has_files) {
    return BadInput(fmt::format("{}: files: expected an object, found none", Printable(path)));
  }
  SP_ASSIGN(const auto listed, oracle::Members(path + ": files", files));
  std::map<std::string, std::string> sums;
  for (const oracle::JsonMember& file : listed) {
    SP_ASSIGN(const auto sum, oracle::AsString(path, "file " + Quote(file.key), file.value));
    if (!oracle::StaysInside(file.key)) {
      return BadInput(fmt::format("{}: expected files inside the directory, found {}",
                                  Printable(path), Quote(file.key)));
    }
    sums.emplace(file.key, sum);
  }
  return sums;
}

}  // namespace

void HoldIntegrity(AuditResult& result) {
  const std::string path = result.path + "/" + kName;
  if (!oracle::IsThere(path)) return;
  const auto listed = Read(path);
  if (!listed.ok()) {
    const bool is_unknown = listed.error().code == ErrorCode::kUnsupported;
    (is_unknown ? result.unjudged : result.damage).push_back(listed.error().message);
    return;
  }
  std::vector<std::string> names;
  for (const auto& [name, sum] : listed.value()) names.push_back(name);
  const auto sums = SumsOf(result.path, names);
  const size_t before = result.damage.size();
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& expected = listed.value().at(names[i]);
    if (!sums[i].ok()) {
      result.damage.push_back(sums[i].error().While(Printable(path) + " lists a file").message);
    } else if (sums[i].value() != expected) {
      result.damage.push_back(fmt::format("{}: file {}: expected SHA-256 {}, found {}",
                                          Printable(path), Quote(names[i]), Printable(expected),
                                          sums[i].value()));
    }
  }
  for (const AuditedFile& file : result.files) {  // it lists those of the directory itself
    if (listed.value().contains(file.name) || file.name.find('/') != std::string::npos) continue;
    result.damage.push_back(
        fmt::format("{}: expected it to list {}, which the checkpoint consists "
                    "of, found it not to",
                    Printable(path), Quote(file.name)));
  }
  if (result.damage.size() > before) return;
  result.remarks.push_back(
      fmt::format("{}: {} with the SHA-256 that it lists", kName, Count(names.size(), "file")));
}

Status WriteIntegrity(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const std::string name = it->path().filename().string();
    // A seal is written anew by itself, and checks all of this too.
    const bool is_listed = name != kName && directory + "/" + name != SealPath(directory);
    if (is_listed && it->is_regular_file(ignored)) names.push_back(name);
  }
  if (error) {
    return BadInput(fmt::format("{}: expected a directory for {}: {}", Printable(directory), kName,
                                error.message()));
  }
  std::sort(names.begin(), names.end());
  const auto sums = SumsOf(directory, names);
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (size_t i = 0; i < names.size(); ++i) {
    if (!sums[i].ok()) return sums[i].error();
    files[names[i]] = sums[i].value();
  }
  const nlohmann::ordered_json document = {{"algorithm", kAlgorithm}, {"files", std::move(files)}};
  return WriteFileAtomically(
      directory + "/" + kName,
      document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

}  // namespace shardproof
