#include "src/text/quote.h"

#include "src/text/printable.h"

namespace shardproof::text {
namespace {

constexpr size_t kShownBytesMax = 160;

}  // namespace

std::string Printable(std::string_view text) {
  const std::string shown = shardproof::Printable(text.substr(0, kShownBytesMax));
  return text.size() > kShownBytesMax ? shown + "..." : shown;
}

std::string Quote(std::string_view text) { return "'" + Printable(text) + "'"; }

}  // namespace shardproof::text
