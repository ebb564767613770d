// Files that are shown other than they are on disk.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/storage/file_system.h"

namespace shardproof {

/// The text that whoever reads the file at `path`, which holds `bytes`, is to see; nothing: its
/// own.
using ShownText =
    std::function<std::optional<std::string>(const std::string& path, std::string_view bytes)>;

/// A file that holds the text.
std::shared_ptr<const MappedFile> MapText(std::string text);

/// What is on disk stays as it is.
std::shared_ptr<FileSystem> ShowOther(std::shared_ptr<FileSystem> inner, ShownText shown);

}  // namespace shardproof
