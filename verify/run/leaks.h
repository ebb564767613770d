// What a process has not given back: descriptors and threads.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace shardproof {

class LeakWatch {
 public:
  /// Notes what the process has now.
  LeakWatch() : before_(Held()) {}
  /// What it has now besides, a line each: "descriptor of /tmp/a", "2 sockets", "thread gloo".
  std::vector<std::string> Since() const;

 private:
  using Counts = std::map<std::string, int>;
  static Counts Held();
  std::vector<std::string> Now() const;

  Counts before_;
};

}  // namespace shardproof
