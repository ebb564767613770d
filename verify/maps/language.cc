#include "verify/maps/language.h"

#include <fmt/format.h>

#include "verify/maps/tokens.h"
#include "verify/oracle/input_file.h"
#include "verify/oracle/quote.h"

namespace shardproof::maps {
namespace {

constexpr uint64_t kMapBytesMax = 100'000'000;
constexpr int kDepthMax = 64;
constexpr std::string_view kConfig = "config.";
constexpr std::string_view kInline = "--map";

using Kind = Expression::Kind;

/// Reads one line by recursive descent.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  bool IsEmpty() const { return Now().kind == Token::Kind::kEnd; }
  bool IsDefinition() const {
    return Now().kind == Token::Kind::kName && tokens_.size() > 1 && tokens_[1].text == "=";
  }

  Result<Definition> ReadDefinition() {
    Definition definition;
    definition.name = Take().text;
    Take();
    SP_ASSIGN(definition.value, ReadSize(0));
    SP_TRY(ExpectEnd());
    return definition;
  }

  Result<Rule> ReadRule() {
    Rule rule;
    rule.optional = Took("?");
    SP_ASSIGN(rule.left, ReadSide());
    SP_TRY(Expect("->"));
    SP_ASSIGN(rule.right, ReadSide());
    SP_TRY(ExpectEnd());
    if (rule.left.empty() && rule.right.empty()) return Wrong("a name on one side");
    if (rule.left.size() > 1 && rule.right.size() > 1) return Wrong("& on one side only");
    return rule;
  }

 private:
  const Token& Now() const { return tokens_[at_]; }
  const Token& Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool Is(const char* sign) const { return Now().kind == Token::Kind::kSign && Now().text == sign; }
  bool Took(const char* sign) {
    if (!Is(sign)) return false;
    Take();
    return true;
  }

  Error Wrong(const std::string& expected) const {
    return BadInput(fmt::format(
        "expected {}, found {}", expected,
        Now().kind == Token::Kind::kEnd ? "the end of the line" : oracle::Quote(Now().text)));
  }
  Status Expect(const char* sign) {
    return Took(sign) ? Ok() : Status(Wrong(fmt::format("'{}'", sign)));
  }
  Status ExpectEnd() const { return IsEmpty() ? Ok() : Status(Wrong("the end of the line")); }

  Result<std::vector<Expression>> ReadSide() {
    std::vector<Expression> side;
    if (Now().kind == Token::Kind::kName && Now().text == "_" && !Now().quoted) {
      Take();
      return side;
    }
    do {
      SP_ASSIGN(Expression expression, ReadSum(0));
      side.push_back(std::move(expression));
    } while (Took("&"));
    return side;
  }

  static Expression Operation(char operation, Expression left, Expression right) {
    Expression made{.kind = Kind::kArithmetic};
    made.operation = operation;
    made.arguments = {std::move(left), std::move(right)};
    return made;
  }

  Result<Expression> ReadSum(int depth) {
    SP_ASSIGN(Expression left, ReadProduct(depth));
    while (Is("+") || Is("-")) {
      const char operation = Take().text[0];
      SP_ASSIGN(Expression right, ReadProduct(depth));
      left = Operation(operation, std::move(left), std::move(right));
    }
    return left;
  }

  Result<Expression> ReadProduct(int depth) {
    SP_ASSIGN(Expression left, ReadTensor(depth));
    while (Is("*") || Is("/")) {
      const char operation = Take().text[0];
      SP_ASSIGN(Expression right, ReadTensor(depth));
      left = Operation(operation, std::move(left), std::move(right));
    }
    return left;
  }

  /// A name, a call or a number, with slices behind it.
  Result<Expression> ReadTensor(int depth) {
    if (depth > kDepthMax) return Wrong(fmt::format("at most {} calls in each other", kDepthMax));
    Expression made;
    if (Took("(")) {
      SP_ASSIGN(made, ReadSum(depth + 1));
      SP_TRY(Expect(")"));
    } else if (Now().kind == Token::Kind::kNumber) {
      made.kind = Kind::kNumber;
      made.number = Take().number;
    } else if (Now().kind == Token::Kind::kName) {
      const Token& name = Take();
      if (Is("(") && !Now().spaced && !name.quoted) {
        SP_ASSIGN(made, ReadCall(name.text, depth));
      } else {
        made.name = NamePattern(name.pieces);
      }
    } else {
      return Wrong("a name, a number or a function");
    }
    while (Is("[")) {
      SP_ASSIGN(made, ReadSlices(std::move(made), depth));
    }
    return made;
  }

  Result<Expression> ReadCall(const std::string& function, int depth) {
    Expression call{.kind = Kind::kCall};
    call.function = function;
    SP_TRY(Expect("("));
    if (Took(")")) return call;
    do {
      if (Now().kind == Token::Kind::kName && tokens_[at_ + 1].text == "=") {
        const std::string name = Take().text;
        Take();
        SP_ASSIGN(Option option, ReadOption(depth));
        if (!call.options.emplace(name, std::move(option)).second) {
          return BadInput(fmt::format("expected {}= once", name));
        }
      } else if (Is("[")) {
        Expression sizes{.kind = Kind::kSizes};
        SP_ASSIGN(sizes.sizes, ReadList(depth));
        call.arguments.push_back(std::move(sizes));
      } else {
        SP_ASSIGN(Expression argument, ReadSum(depth + 1));
        call.arguments.push_back(std::move(argument));
      }
    } while (Took(","));
    SP_TRY(Expect(")"));
    return call;
  }

  Result<Option> ReadOption(int depth) {
    Option option;
    option.word = Now().text;
    if (Now().kind == Token::Kind::kNumber) option.number = Now().number;
    if (Is("[")) {
      SP_ASSIGN(option.sizes, ReadList(depth));
      return option;
    }
    if (option.number && *option.number != static_cast<double>(int64_t(*option.number))) {
      Take();
      return option;
    }
    SP_ASSIGN(Size size, ReadSize(depth));
    option.sizes.push_back(std::move(size));
    return option;
  }

  Result<std::vector<Size>> ReadList(int depth) {
    std::vector<Size> sizes;
    SP_TRY(Expect("["));
    if (Took("]")) return sizes;
    do {
      SP_ASSIGN(Size size, ReadSize(depth));
      sizes.push_back(std::move(size));
    } while (Took(","));
    SP_TRY(Expect("]"));
    return sizes;
  }

  Result<Expression> ReadSlices(Expression base, int depth) {
    Expression made{.kind = Kind::kSlice};
    made.arguments.push_back(std::move(base));
    SP_TRY(Expect("["));
    do {
      Slice slice;
      if (!Is(":")) {
        SP_ASSIGN(slice.low, ReadSize(depth));
      }
      slice.range = Took(":");
      if (slice.range && !Is(",") && !Is("]")) {
        SP_ASSIGN(slice.high, ReadSize(depth));
      }
      made.slices.push_back(std::move(slice));
    } while (Took(","));
    SP_TRY(Expect("]"));
    return made;
  }

  Result<Size> ReadSize(int depth) {
    SP_ASSIGN(Size left, ReadFactor(depth));
    while (Is("+") || Is("-")) {
      const char operation = Take().text[0];
      SP_ASSIGN(Size right, ReadFactor(depth));
      left = SizeOperation(operation, std::move(left), std::move(right));
    }
    return left;
  }

  Result<Size> ReadFactor(int depth) {
    SP_ASSIGN(Size left, ReadOneSize(depth));
    while (Is("*") || Is("/")) {
      const char operation = Take().text[0];
      SP_ASSIGN(Size right, ReadOneSize(depth));
      left = SizeOperation(operation, std::move(left), std::move(right));
    }
    return left;
  }

  static Size SizeOperation(char operation, Size left, Size right) {
    Size made{.kind = Size::Kind::kOperation};
    made.operation = operation;
    made.operands = {std::move(left), std::move(right)};
    return made;
  }

  Result<Size> ReadOneSize(int depth) {
    if (depth > kDepthMax)
      return Wrong(fmt::format("at most {} brackets in each other", kDepthMax));
    if (Took("(")) {
      SP_ASSIGN(Size inner, ReadSize(depth + 1));
      SP_TRY(Expect(")"));
      return inner;
    }
    Size size;
    if (Now().kind == Token::Kind::kNumber) {
      constexpr double kMost = 1e15;
      const double number = Now().number;
      if (!(number >= -kMost && number <= kMost) || number != double(int64_t(number))) {
        return Wrong("a whole number");
      }
      size.number = static_cast<int64_t>(Take().number);
      return size;
    }
    if (Now().kind != Token::Kind::kName || Now().quoted) return Wrong("a size");
    const Token& token = Take();
    const bool captures = token.pieces.size() == 1 && token.pieces[0].captures;
    size.name = captures ? token.pieces[0].text : token.text;
    size.kind = captures ? Size::Kind::kCapture : Size::Kind::kVariable;
    if (token.text.starts_with(kConfig)) {
      size.kind = Size::Kind::kConfig;
      size.name.erase(0, kConfig.size());
    }
    return size;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

Status ParseLine(const std::string& line, const std::string& where, Map& map) {
  SP_ASSIGN(std::vector<Token> tokens, Tokens(line));
  Parser parser(std::move(tokens));
  if (parser.IsEmpty()) return Ok();
  if (parser.IsDefinition()) {
    SP_ASSIGN(Definition definition, parser.ReadDefinition());
    definition.where = where;
    map.definitions.push_back(std::move(definition));
    return Ok();
  }
  SP_ASSIGN(Rule rule, parser.ReadRule());
  rule.where = where;
  rule.text = line.substr(0, line.find('#'));
  map.rules.push_back(std::move(rule));
  return Ok();
}

}  // namespace

Result<Map> ParseMap(const std::string& where, const std::string& text) {
  Map map;
  int number = 0;
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // of UTF-8, as editors write it
  for (size_t begin = text.starts_with(kMark) ? kMark.size() : 0; begin <= text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    std::string line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    begin = end + 1;
    const bool alone = number == 0 && end == text.size() && where.starts_with(kInline);
    const std::string place = alone ? where : fmt::format("{}: line {}", where, ++number);
    if (const Status parsed = ParseLine(line, place, map); !parsed.ok()) {
      return parsed.error().While(place);
    }
  }
  if (map.rules.empty()) {
    return BadInput(
        fmt::format("{}: expected a rule such as 'old.name -> new.name', found none", where));
  }
  return map;
}

Result<Map> ReadMaps(const std::vector<std::string>& words) {
  Map all;
  for (const std::string& word : words) {
    const bool is_rule = word.find("->") != std::string::npos;
    std::string text = word;
    if (!is_rule) {
      SP_ASSIGN(text, oracle::ReadWholeFile(word, kMapBytesMax));
      const size_t begin = text.find_first_not_of(" \t\r\n");
      if (begin != std::string::npos && text[begin] == '{' && text.find("->") == std::string::npos)
        return BadInput(fmt::format(
            "{}: expected rules such as 'stack(experts.{{e}}.up) -> experts.up', one on each line, "
            "found JSON",
            oracle::Printable(word)));
    }
    const std::string rule = std::string(kInline) + " " + oracle::Quote(word);
    SP_ASSIGN(Map map, ParseMap(is_rule ? rule : oracle::Printable(word), text));
    std::move(map.definitions.begin(), map.definitions.end(), std::back_inserter(all.definitions));
    std::move(map.rules.begin(), map.rules.end(), std::back_inserter(all.rules));
  }
  return all;
}

std::string NameText(const std::string& name) {
  const auto tokens = Tokens(name);
  const bool plain = tokens.ok() && tokens.value().size() == 2 && name != "_" &&
                     tokens.value()[0].kind == Token::Kind::kName &&
                     tokens.value()[0].text == name && !tokens.value()[0].quoted &&
                     tokens.value()[0].pieces.size() == 1 && !tokens.value()[0].pieces[0].captures;
  return plain ? name : "\"" + name + "\"";
}

}  // namespace shardproof::maps
