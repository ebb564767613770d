#include "verify/crashtest/loader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "verify/crash_states/link_target.h"
#include "verify/process/line_program.h"
#include "verify/process/program.h"

namespace shardproof::crashtest {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

/// Beyond the deadline of a load, which the program keeps itself.
constexpr milliseconds kPatience{30000};
constexpr milliseconds kImportPatience{300000};

class PythonLoader : public Loader {
 public:
  PythonLoader(LineProgram program, milliseconds deadline)
      : program_(std::move(program)), deadline_(deadline) {}

  /// \error as MakePythonLoader
  Status Begin(const std::string& python) {
    SP_ASSIGN(const Json first, Hear(kImportPatience));
    if (const auto refusal = first.find("refusal"); refusal != first.end()) {
      return BadInput(
          fmt::format("{}: cannot load checkpoints: {}", python, refusal->get<std::string>()));
    }
    versions_ = first.at("ready").get<std::map<std::string, std::string>>();
    return Ok();
  }

  Result<Loading> Load(const std::string& directory, const What& what) override {
    const Json order = {{"directory", directory},
                        {"what", what.Json()},
                        {"deadline_s", static_cast<double>(deadline_.count()) / 1000}};
    SP_TRY(program_.Tell(order.dump(-1, ' ', true, Json::error_handler_t::replace)));
    SP_ASSIGN(const Json answer, Hear(deadline_ + kPatience));
    const auto end = answer.value("end", "");
    Loading loading{.line = answer.value("line", end)};
    if (end == "ok") {
      loading.end = Loading::End::kLoaded;
      loading.answer = answer.value("answer", "");
    } else if (end == "error") {
      loading.end = Loading::End::kRefused;
    }
    return loading;
  }

  const std::map<std::string, std::string>& versions() const override { return versions_; }

 private:
  Result<Json> Hear(milliseconds patience) {
    SP_ASSIGN(const std::string line, program_.Hear(patience));
    Json answer = Json::parse(line, nullptr, false);
    if (!answer.is_object()) return Internal("the loader: expected JSON, found: " + line);
    return answer;
  }

  LineProgram program_;
  const milliseconds deadline_;
  std::map<std::string, std::string> versions_;
};

class CommandLoader : public Loader {
 public:
  CommandLoader(std::vector<std::string> words, milliseconds deadline)
      : words_(std::move(words)), deadline_(deadline) {}

  Result<Loading> Load(const std::string& directory, const What&) override {
    std::vector<std::string> words = words_;
    for (std::string& word : words) {
      for (size_t at = 0; (at = word.find("{}", at)) != std::string::npos; at += directory.size()) {
        word.replace(at, 2, directory);
      }
    }
    const auto run = RunProgram(words, deadline_);
    if (!run.ok()) return BadInput("--load: " + run.error().message);
    const ProgramEnd& end = run.value();
    if (end.output_is_cut) {
      return BadInput(
          fmt::format("--load: expected the command to print at most {} bytes, found more; it can "
                      "print a digest",
                      kProgramOutputBytesMax));
    }
    if (end.ok()) return Loading{Loading::End::kLoaded, end.output, "exit 0"};
    if (end.exit) return Loading{Loading::End::kRefused, "", LastLine(end.error_tail)};
    return Loading{Loading::End::kDied, "", end.how};
  }

  const std::map<std::string, std::string>& versions() const override { return versions_; }

 private:
  const std::vector<std::string> words_;
  const milliseconds deadline_;
  const std::map<std::string, std::string> versions_;
};

}  // namespace

std::string What::FirstPath() const {
  return files.empty() ? path : crash::Joined(path, files.front());
}

std::string What::Text() const {
  if (kind == "command") return "what the command makes of it";
  const char* by = kind == "dcp"           ? "torch.distributed.checkpoint.load"
                   : kind == "torch"       ? "torch.load"
                   : kind == "safetensors" ? "safetensors"
                                           : "safetensors and torch.load";
  if (!named_by.empty()) return fmt::format("what {} names by {}", named_by, by);
  if (kind == "dcp") return fmt::format("{} by {}", path.empty() ? "." : path, by);
  std::vector<std::string> whole;
  for (const std::string& file : files) whole.push_back(crash::Joined(path, file));
  return fmt::format("{} by {}", fmt::join(whole, ", "), by);
}

nlohmann::json What::Json() const {
  return {{"kind", kind}, {"path", path}, {"files", files}, {"named_by", named_by}};
}

std::string LastLine(const std::string& text) {
  const size_t last = text.find_last_not_of(" \t\r\n");
  if (last == std::string::npos) return "";
  const size_t before = text.rfind('\n', last);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, last + 1 - begin);
}

Result<std::unique_ptr<Loader>> MakePythonLoader(const std::string& python,
                                                 const std::string& package,
                                                 milliseconds deadline) {
  SP_ASSIGN(LineProgram program,
            LineProgram::Start({python, "-B", package + "/_programs/_load.py"}));
  auto loader = std::make_unique<PythonLoader>(std::move(program), deadline);
  SP_TRY(loader->Begin(python));
  return std::unique_ptr<Loader>(std::move(loader));
}

std::unique_ptr<Loader> MakeCommandLoader(std::vector<std::string> words, milliseconds deadline) {
  return std::make_unique<CommandLoader>(std::move(words), deadline);
}

}  // namespace shardproof::crashtest
