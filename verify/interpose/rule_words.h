// The words of one rule, taken apart and checked on their own; what they may mean together, rule.cc
// says.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "verify/interpose/rule.h"

namespace shardproof::interpose {

/// In single quotes, bytes that are not printable ASCII as \xNN, cut after 80.
std::string Shown(std::string_view text);

/// Whether it can be the name of a point of libfiu's POSIX preload.
bool IsPoint(std::string_view name);

/// A whole number from `least` to `most`, in digits alone.
Result<int64_t> ParseNumber(std::string_view text, int64_t least, int64_t most,
                            const std::string& what);

/// NAME or CODE of an error of the family.
Result<int64_t> ParseError(Family family, std::string_view text);

/// The act that `key` names, if it names one.
std::optional<Act> ActNamed(std::string_view key);

/// Sets the act of `rule`. \param value  nothing if no `=` follows the key
Status SetAct(Act act, std::string_view key, std::optional<std::string_view> value, Rule& rule);

/// Sets what says when `rule` strikes.
Status SetWhen(std::string_view key, std::optional<std::string_view> value, Rule& rule);

}  // namespace shardproof::interpose
