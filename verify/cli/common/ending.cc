#include "verify/cli/common/ending.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

namespace shardproof {
namespace {

constexpr size_t kBytesMax = 500;

// The handler reads the one that is not written.
std::array<std::array<char, kBytesMax>, 2> texts;
std::atomic<int> current = 0;
std::string now, done;
pid_t teller = 0;

void Write(const char* text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); }

/// Only what may be called in a handler.
void Tell(int number) {
  if (::getpid() == teller) {
    Write(number == SIGINT ? "\nshardproof: ended by SIGINT" : "\nshardproof: ended by SIGTERM");
    Write(texts[static_cast<size_t>(current)].data());
    Write("; nothing was judged\n");
  }
  ::signal(number, SIG_DFL);
  ::raise(number);
}

}  // namespace

void TellWhenEnded() {
  teller = ::getpid();
  for (const int number : {SIGINT, SIGTERM}) {
    if (::signal(number, Tell) == SIG_IGN) ::signal(number, SIG_IGN);
  }
}

void NoteProgress(const std::string& line) {
  if (!now.empty()) done += (done.empty() ? "" : ", ") + now.substr(0, now.find(':'));
  now = line;
  std::string text = now.empty() ? "" : fmt::format(" at `{}`", now);
  if (!done.empty()) text += fmt::format(", after {}", done);
  const size_t other = 1 - static_cast<size_t>(current);
  const size_t length = text.copy(texts[other].data(), kBytesMax - 1);
  texts[other][length] = '\0';
  current = static_cast<int>(other);
}

}  // namespace shardproof
