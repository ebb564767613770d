// What can be asked about a thread that is stopped in a system call.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace shardproof::trace {

/// Copies [address, address + count) of its memory. \returns false if not all of it can be read.
bool ReadBytes(pid_t thread, uint64_t address, char* to, uint64_t count);

/// A string that ends in 0, of at most `bytes_max` bytes; nothing if there is none.
std::optional<std::string> ReadText(pid_t thread, uint64_t address, size_t bytes_max = 4096);

/// What an open descriptor stands for, as /proc says it: a path, "/a (deleted)", "pipe:[7]".
std::optional<std::string> PathOfDescriptor(pid_t thread, int descriptor);

/// The absolute path that a call means by a descriptor of a directory (or AT_FDCWD) and a path,
/// which may be empty and then is the descriptor's. All but its last name is free of links, "." and
/// ".."; where the directory does not exist, the path as it was given.
std::optional<std::string> ResolvePath(pid_t thread, int directory, const std::string& path);
/// Likewise of a path in the thread's memory.
std::optional<std::string> ResolvePathAt(pid_t thread, int directory, uint64_t address);

}  // namespace shardproof::trace
