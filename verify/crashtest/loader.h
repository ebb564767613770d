// Loads a checkpoint from a directory with somebody else's loader, and keeps what came of it.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "src/core/result.h"

namespace shardproof::crashtest {

/// What is to be loaded of a directory.
struct What {
  std::string kind;  ///< "dcp", "torch", "safetensors", "files" (of the two), or "command"
  std::string path;  ///< where it lies in the directory; empty: it is the directory
  std::vector<std::string> files;  ///< names there; of "dcp" and "command" none
  /// A small file that says where it lies, from its own directory on: either a directory, of which
  /// `files` are then the names, or the one file. Empty: `path` says it.
  std::string named_by = "";

  bool operator==(const What&) const = default;
  /// Below the directory: of the first file, or of all.
  std::string FirstPath() const;
  /// For people: "step-2 by torch.distributed.checkpoint", "model.pt by torch.load".
  std::string Text() const;
  /// As _load.py and the scripts read it.
  nlohmann::json Json() const;
};

struct Loading {
  enum class End {
    kLoaded,   ///< `answer` is all that a caller can see of it
    kRefused,  ///< it said why in `line`
    kDied,     ///< a signal, no end in time, or an end without an answer: `line` says which
  };
  End end = End::kDied;
  std::string answer;
  std::string line;
};

class Loader {
 public:
  virtual ~Loader() = default;
  /// \error if it cannot be asked.
  virtual Result<Loading> Load(const std::string& directory, const What& what) = 0;
  /// Of the libraries that it uses, by name.
  virtual const std::map<std::string, std::string>& versions() const = 0;
};

/// torch.distributed.checkpoint, torch.load and safetensors of a Python.
/// \param package  folder of the Python package `shardproof`
/// \error kBadInput if that Python cannot import them.
Result<std::unique_ptr<Loader>> MakePythonLoader(const std::string& python,
                                                 const std::string& package,
                                                 std::chrono::milliseconds deadline);

/// A program, in whose words {} stands for the directory. What it says on stdout is the answer; an
/// exit code that is not 0 is a refusal, and the last line of stderr its reason.
std::unique_ptr<Loader> MakeCommandLoader(std::vector<std::string> words,
                                          std::chrono::milliseconds deadline);

/// The last line that is not empty; of text for people.
std::string LastLine(const std::string& text);

}  // namespace shardproof::crashtest
