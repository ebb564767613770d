// What a process has not given back: descriptors, threads, children, mapped files, shared memory,
// temporary files.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace shardproof {

class LeakWatch {
 public:
  /// Notes what the process has now. \param temporary  where its temporary files are to be; those
  /// of others are elsewhere
  explicit LeakWatch(std::string temporary) : temporary_(std::move(temporary)), before_(Held()) {}
  /// What it has now besides, a line each: "descriptor of /tmp/a", "thread gloo", "child process
  /// sleep", "mapping of /tmp/a", "shared memory /dev/shm/a", "temporary file a".
  std::vector<std::string> Since() const;

 private:
  using Counts = std::map<std::string, int>;  ///< by what it is, as Since says it
  struct Things {
    Counts threads;
    Counts others;
  };
  Things Held() const;
  std::vector<std::string> Now() const;

  const std::string temporary_;
  const Things before_;
};

}  // namespace shardproof
