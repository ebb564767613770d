#include "verify/interpose/preload/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace shardproof::interpose {
namespace {

constexpr size_t kLineBytes = 4096;
constexpr size_t kPathBytes = 4096;
char log_path[kPathBytes] = "";

const char* NameOf(const Rule& rule) {
  return rule.point.empty() ? InfoOf(rule.function).name : rule.point.c_str();
}

void WriteLine(const char* format, va_list arguments) {
  char line[kLineBytes] = "shardproof_interpose: ";
  const size_t begun = ::strlen(line);
  ::vsnprintf(line + begun, kLineBytes - begun - 1, format, arguments);
  ::strcat(line, "\n");
  if (::syscall(SYS_write, 2, line, ::strlen(line)) < 0) return;  // nobody is left to be told
}

/// At the end of the file. It is opened anew each time: programs close what they do not know.
long OpenToAppend() {
  return ::syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
}

/// By one write(2).
bool Append(const char* line, size_t bytes) {
  const bool is_file = log_path[0] != '\0';
  const long file = is_file ? OpenToAppend() : STDERR_FILENO;
  if (file < 0) return false;
  const bool is_whole = ::syscall(SYS_write, file, line, bytes) == static_cast<long>(bytes);
  const int write_errno = errno;
  if (is_file) ::syscall(SYS_close, file);
  errno = write_errno;
  return is_whole;
}

/// What is about to happen, for people.
void Describe(const Rule& rule, char* out, size_t bytes) {
  const long long value = rule.value;
  const Family family = InfoOf(rule.function).family;
  switch (rule.act) {
    case Act::kError:
      ::snprintf(out, bytes, "not called, it returns %s", NameOfError(family, value).c_str());
      return;
    case Act::kDelay:
      ::snprintf(out, bytes, "called after %lld ms", value);
      return;
    case Act::kHang:
      if (value == 0) ::snprintf(out, bytes, "not called, it does not return");
      if (value != 0) ::snprintf(out, bytes, "called after %lld s", value);
      return;
    case Act::kDrop:
      ::snprintf(out, bytes, "not called, it returns success");
      return;
    case Act::kFlip:
      ::snprintf(out, bytes, "bit %lld of its result is flipped when it is there", value);
      return;
    case Act::kAsyncError:
      ::snprintf(out, bytes, "its communicator reports %s from now on",
                 NameOfError(family, value).c_str());
  }
}

}  // namespace

void Tell(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  WriteLine(format, arguments);
  va_end(arguments);
}

void Refuse(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  WriteLine(format, arguments);
  va_end(arguments);
  ::_exit(2);
}

void OpenLog() {
  const char* given = ::getenv(kLogVariable);
  if (given == nullptr) return;
  if (given[0] == '\0') Refuse("%s is empty: expected the path of a file", kLogVariable);
  char here[kPathBytes] = "";
  if (given[0] != '/' && ::getcwd(here, sizeof here) == nullptr) {
    Refuse("%s=%.200s: the current directory has no path: %s", kLogVariable, given,
           ::strerror(errno));
  }
  // The program may go elsewhere.
  const int bytes =
      ::snprintf(log_path, sizeof log_path, "%s%s%s", here, here[0] == '\0' ? "" : "/", given);
  if (bytes >= static_cast<int>(sizeof log_path)) {
    Refuse("%s: the path has %d bytes, expected fewer than %zu", kLogVariable, bytes, kPathBytes);
  }
  const long file = OpenToAppend();
  if (file < 0) {
    Refuse("%s=%.200s cannot be written: %s", kLogVariable, given, ::strerror(errno));
  }
  ::syscall(SYS_close, file);
}

bool LogFiring(const Rule& rule, int64_t call, int64_t rank, const Facts& facts) {
  char detail[256];
  Describe(rule, detail, sizeof detail);
  char rank_text[24] = "null";
  if (rank >= 0) ::snprintf(rank_text, sizeof rank_text, "%lld", static_cast<long long>(rank));
  char line[kLineBytes];
  // Nothing in a rule that has been accepted needs to be escaped.
  const int bytes = ::snprintf(
      line, sizeof line,
      "{\"fault\": \"%s\", \"function\": \"%s\", \"call\": %lld, \"rank\": %s, \"bytes\": %llu, "
      "\"detail\": \"%s\"}\n",
      rule.text.c_str(), NameOf(rule), static_cast<long long>(call), rank_text,
      static_cast<unsigned long long>(facts.bytes), detail);
  if (bytes < static_cast<int>(sizeof line) && Append(line, static_cast<size_t>(bytes)))
    return true;
  Tell("rule %.200s does not act: it cannot be written to %.200s: %s", rule.text.c_str(), log_path,
       ::strerror(errno));
  return false;
}

void LogUndone(const Rule& rule, const char* why) {
  char line[kLineBytes];
  const int bytes = ::snprintf(line, sizeof line,
                               "{\"fault\": \"%s\", \"function\": \"%s\", \"undone\": \"%s\"}\n",
                               rule.text.c_str(), NameOf(rule), why);
  if (!Append(line, static_cast<size_t>(bytes))) {
    Tell("that rule %.200s did not act cannot be written: %s", rule.text.c_str(),
         ::strerror(errno));
  }
  Tell("rule %.200s did not act: %s", rule.text.c_str(), why);
}

}  // namespace shardproof::interpose
