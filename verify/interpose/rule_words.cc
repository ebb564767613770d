#include "verify/interpose/rule_words.h"

#include <string.h>

#include <charconv>
#include <limits>

namespace shardproof::interpose {
namespace {

constexpr int64_t kMillisecondsMax = 3'600'000;
constexpr int64_t kSecondsMax = 86'400;
constexpr int64_t kBitMax = int64_t{1} << 43;
constexpr int64_t kCallsMax = int64_t{1} << 32;
constexpr int64_t kRanksMax = int64_t{1} << 20;
constexpr int64_t kBytesMax = std::numeric_limits<int64_t>::max();
constexpr size_t kShownBytesMax = 80;

struct NamedError {
  const char* name;
  Family family;
  int64_t code;
};
constexpr NamedError kErrors[] = {
#define CUDA_ERROR(name, code) {#name, Family::kCuda, code},
#define NCCL_ERROR(name, code) {#name, Family::kNccl, code},
#include "verify/interpose/errors.inc"
};

struct NamedAct {
  const char* name;
  Act act;
};
constexpr NamedAct kActs[] = {{"error", Act::kError}, {"delay", Act::kDelay},
                              {"hang", Act::kHang},   {"drop", Act::kDrop},
                              {"flip", Act::kFlip},   {"async-error", Act::kAsyncError}};

/// The driver's numbers are the runtime's, where both have an error.
Family NamesOf(Family family) { return family == Family::kDriver ? Family::kCuda : family; }

int64_t CodesMax(Family family) {
  if (family == Family::kNccl) return 99;
  return family == Family::kPosix ? 133 : 999;  // EHWPOISON, cudaErrorUnknown
}

std::string ErrnoName(int64_t code) {
  const char* name = ::strerrorname_np(static_cast<int>(code));
  return name == nullptr ? "" : name;
}

std::string Example(Family family) {
  if (family == Family::kNccl) return "ncclSystemError";
  return family == Family::kPosix ? "ENOSPC" : "cudaErrorMemoryAllocation";
}

}  // namespace

std::string Shown(std::string_view text) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text.substr(0, kShownBytesMax)) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f) {
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + (text.size() > kShownBytesMax ? "...'" : "'");
}

bool IsPoint(std::string_view name) {
  constexpr std::string_view kPrefix = "posix/";
  return name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_/") == name.npos;
}

Result<int64_t> ParseNumber(std::string_view text, int64_t least, int64_t most,
                            const std::string& what) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, number);
  const bool is_number = failure == std::errc() && stop == end;
  if (is_number && number >= least && number <= most) return number;
  return BadInput(what + " " + Shown(text) + ": expected a whole number from " +
                  std::to_string(least) + " to " + std::to_string(most));
}

Result<int64_t> ParseError(Family family, std::string_view text) {
  if (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    return ParseNumber(text, 1, CodesMax(family), "the error");
  }
  for (const NamedError& error : kErrors) {
    if (error.family == NamesOf(family) && text == error.name) return error.code;
  }
  for (int64_t code = 1; family == Family::kPosix && code <= CodesMax(family); ++code) {
    if (ErrnoName(code) == text) return code;
  }
  return BadInput("the error " + Shown(text) + ": expected a number or a name such as " +
                  Example(family) + " (names: verify/interpose/errors.inc)");
}

std::string NameOfError(Family family, int64_t code) {
  for (const NamedError& error : kErrors) {
    if (error.family == NamesOf(family) && error.code == code) return error.name;
  }
  const std::string name = family == Family::kPosix ? ErrnoName(code) : "";
  return name.empty() ? std::to_string(code) : name;
}

std::optional<Act> ActNamed(std::string_view key) {
  for (const NamedAct& named : kActs) {
    if (key == named.name) return named.act;
  }
  return std::nullopt;
}

Status SetAct(Act act, std::string_view key, std::optional<std::string_view> value, Rule& rule) {
  rule.act = act;
  if (act == Act::kDrop && value) return BadInput("'drop' takes no value");
  if (act == Act::kDrop || (act == Act::kHang && !value)) return Ok();
  const std::string_view text = value.value_or("");
  switch (act) {
    case Act::kDelay: {
      SP_ASSIGN(rule.value, ParseNumber(text, 1, kMillisecondsMax, "the delay in milliseconds"));
      return Ok();
    }
    case Act::kHang: {
      SP_ASSIGN(rule.value, ParseNumber(text, 1, kSecondsMax, "the seconds of 'hang'"));
      return Ok();
    }
    case Act::kFlip: {
      SP_ASSIGN(rule.value, ParseNumber(text, 0, kBitMax, "the bit"));
      return Ok();
    }
    default: {
      SP_ASSIGN(rule.value, ParseError(InfoOf(rule.function).family, text));
      return Ok();
    }
  }
  return Internal("no act " + std::string(key));
}

Status SetWhen(std::string_view key, std::optional<std::string_view> value, Rule& rule) {
  const std::string_view text = value.value_or("");
  if (key == "then-on" && !value) {
    rule.then_on = true;
  } else if (key == "call") {
    SP_ASSIGN(rule.call, ParseNumber(text, 0, kCallsMax, "the call's number"));
  } else if (key == "rank" && text != "all") {
    SP_ASSIGN(rule.rank, ParseNumber(text, 0, kRanksMax, "the rank"));
  } else if (key == "bytes") {
    SP_ASSIGN(const int64_t bytes, ParseNumber(text, 0, kBytesMax, "the number of bytes"));
    rule.bytes_min = static_cast<uint64_t>(bytes);
  } else if (key != "rank") {
    return BadInput(Shown(value ? std::string(key) + "=" + std::string(text) : std::string(key)) +
                    ": expected error=CODE, delay=MS, hang, hang=SECONDS, drop, flip=BIT, "
                    "async-error=CODE, call=N, rank=R, bytes=N or then-on");
  }
  return Ok();
}

}  // namespace shardproof::interpose
