#include "verify/maps/name_pattern.h"

namespace shardproof::maps {
namespace {

using Piece = NamePattern::Piece;

/// Whether pieces from `piece` on are the name from `at` on; fills in the captures.
bool MatchFrom(const std::vector<Piece>& pieces, size_t piece, const std::string& name, size_t at,
               Captures& captures) {
  if (piece == pieces.size()) return at == name.size();
  const Piece& now = pieces[piece];
  const auto known = captures.find(now.text);
  if (!now.captures || known != captures.end()) {
    const std::string& text = now.captures ? known->second : now.text;
    return name.compare(at, text.size(), text) == 0 &&
           MatchFrom(pieces, piece + 1, name, at + text.size(), captures);
  }
  for (size_t end = at + 1; end <= name.size(); ++end) {
    if (!now.any && name[end - 1] == '.') return false;
    captures[now.text] = name.substr(at, end - at);
    if (MatchFrom(pieces, piece + 1, name, end, captures)) return true;
    captures.erase(now.text);
  }
  return false;
}

}  // namespace

std::optional<Captures> NamePattern::Match(const std::string& name) const {
  Captures captures;
  if (!MatchFrom(pieces_, 0, name, 0, captures)) return std::nullopt;
  return captures;
}

std::string NamePattern::Fill(const Captures& captures) const {
  std::string name;
  for (const Piece& piece : pieces_) {
    name += piece.captures ? captures.at(piece.text) : piece.text;
  }
  return name;
}

std::set<std::string> NamePattern::Names() const {
  std::set<std::string> names;
  for (const Piece& piece : pieces_) {
    if (piece.captures) names.insert(piece.text);
  }
  return names;
}

bool NamePattern::IsGeneral() const {
  for (const Piece& piece : pieces_) {
    if (piece.any) return true;
  }
  return false;
}

std::string NamePattern::Text() const {
  std::string text;
  for (const Piece& piece : pieces_) {
    text += piece.captures ? "{" + piece.text + (piece.any ? "*}" : "}") : piece.text;
  }
  return text;
}

}  // namespace shardproof::maps
