#include "verify/process/scratch_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace shardproof {
namespace {

/// Reads until every process that holds the other end is gone, which forked ranks do too. What
/// signals the whole group, as a terminal does, must not end it first.
constexpr const char* kGuard = "trap '' HUP INT QUIT TERM; read -r nothing; rm -rf -- \"$1\"";

}  // namespace

Result<std::unique_ptr<ScratchDirectory>> ScratchDirectory::Make(const std::string& parent) {
  auto made = std::unique_ptr<ScratchDirectory>(new ScratchDirectory);
  const char* chosen = std::getenv("TMPDIR");
  const std::string temporary = chosen == nullptr || *chosen == '\0' ? "/tmp" : chosen;
  std::string path = (parent.empty() ? temporary : parent) + "/shardproof-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    return BadInput(fmt::format("{}: cannot be made: {}", path, std::strerror(errno)));
  }
  made->path_ = path;
  made->StartGuard();
  return made;
}

void ScratchDirectory::StartGuard() {
  // Without one, which costs no more than files left behind, everything else goes on.
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return;
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, ends[0], STDIN_FILENO);
  ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const char* words[] = {"sh", "-c", kGuard, "sh", path_.c_str(), nullptr};
  const int failed =
      ::posix_spawn(&guard_, "/bin/sh", &files, nullptr, const_cast<char**>(words), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(ends[0]);
  if (failed != 0) {
    ::close(ends[1]);
    guard_ = -1;
    return;
  }
  alive_ = ends[1];
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  if (guard_ < 0) return;
  ::kill(guard_, SIGKILL);
  ::waitpid(guard_, nullptr, 0);
  ::close(alive_);
}

}  // namespace shardproof
