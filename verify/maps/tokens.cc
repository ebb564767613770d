#include "verify/maps/tokens.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "verify/oracle/quote.h"

namespace shardproof::maps {
namespace {

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNamed(char c) { return IsLetter(c) || IsDigit(c) || std::strchr(".-/@$", c) != nullptr; }

class Lexer {
 public:
  explicit Lexer(const std::string& line) : line_(line) {}

  Result<std::vector<Token>> Run() {
    std::vector<Token> tokens;
    while (true) {
      const size_t before = at_;
      while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t')) ++at_;
      if (at_ == line_.size() || line_[at_] == '#') break;
      SP_ASSIGN(Token token, Next());
      token.spaced = at_ > before && (line_[before] == ' ' || line_[before] == '\t');
      tokens.push_back(std::move(token));
    }
    tokens.push_back({});
    return tokens;
  }

 private:
  bool AtArrow() const { return line_.compare(at_, 2, "->") == 0; }

  Result<Token> Next() {
    const char c = line_[at_];
    if (c == '"') return Quoted();
    if (AtArrow()) return Sign(2);
    const bool alone = at_ + 1 == line_.size() || !IsNamed(line_[at_ + 1]);
    if ((c == '-' || c == '/') && alone) return Sign(1);
    if (c == '{' || IsNamed(c)) return Name();
    if (std::strchr("()[],:=&+*?", c) != nullptr && c != '\0') return Sign(1);
    size_t length = 1;  // with all bytes of a character of UTF-8
    while (at_ + length < line_.size() && (line_[at_ + length] & 0xc0) == 0x80) ++length;
    return BadInput(
        fmt::format("expected a name or a sign, found {}; names with other characters "
                    "stand in double quotes",
                    oracle::Quote(line_.substr(at_, length))));
  }

  Token Sign(size_t length) {
    Token token{.kind = Token::Kind::kSign, .text = line_.substr(at_, length)};
    at_ += length;
    return token;
  }

  Result<Token> Quoted() {
    const size_t end = line_.find('"', at_ + 1);
    if (end == std::string::npos) return BadInput("expected a second double quote, found none");
    Token token{.kind = Token::Kind::kName, .text = line_.substr(at_ + 1, end - at_ - 1)};
    token.quoted = true;
    token.pieces.push_back({.text = token.text});
    at_ = end + 1;
    return token;
  }

  Result<Token> Name() {
    Token token{.kind = Token::Kind::kName, .text = ""};
    const size_t begin = at_;
    std::string plain;
    while (at_ < line_.size() && (line_[at_] == '{' || IsNamed(line_[at_])) && !AtArrow()) {
      if (line_[at_] != '{') {
        plain += line_[at_++];
        continue;
      }
      if (!plain.empty()) token.pieces.push_back({.text = std::exchange(plain, "")});
      SP_TRY(Capture(token));
    }
    if (!plain.empty()) token.pieces.push_back({.text = plain});
    token.text = line_.substr(begin, at_ - begin);
    const char* end = token.text.data() + token.text.size();
    const auto [stop, error] = std::from_chars(token.text.data(), end, token.number);
    if (error == std::errc() && stop == end) token.kind = Token::Kind::kNumber;
    return token;
  }

  Status Capture(Token& token) {
    const size_t end = line_.find('}', at_);
    if (end == std::string::npos) return BadInput("expected a } behind a {, found none");
    std::string name = line_.substr(at_ + 1, end - at_ - 1);
    const bool any = !name.empty() && name.back() == '*';
    if (any) name.pop_back();
    bool good = !name.empty() && IsLetter(name[0]);
    for (const char c : name) good = good && (IsLetter(c) || IsDigit(c));
    if (!good) {
      return BadInput(fmt::format("expected a capture such as {{l}} or {{rest*}}, found {}",
                                  oracle::Quote(line_.substr(at_, end - at_ + 1))));
    }
    token.pieces.push_back({.captures = true, .any = any, .text = name});
    at_ = end + 1;
    return Ok();
  }

  const std::string& line_;
  size_t at_ = 0;
};

}  // namespace

Result<std::vector<Token>> Tokens(const std::string& line) { return Lexer(line).Run(); }

}  // namespace shardproof::maps
