// Digests of files, taken while they are written.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "src/digest/digest.hpp"
#include "src/seam/decorators.h"

namespace shardproof {

/// Passes everything on, and adds what is written to the digest of its file: of one that several
/// ranks write, each byte by one of them, the digest is the sum of theirs.
class DigestedFiles : public FilesDecorator {
 public:
  using FilesDecorator::FilesDecorator;
  Result<std::unique_ptr<OutputFile>> OpenForWrite(const std::string& path) override;
  Status Create(const std::string& path, uint64_t size) override;
  Status RemoveTree(const std::string& path) override;

  /// What was written here of a file; nothing yet: 0.
  Digest Of(const std::string& path) const;

 private:
  std::shared_ptr<std::map<std::string, Digest>> sums_ =
      std::make_shared<std::map<std::string, Digest>>();
};

}  // namespace shardproof
