// What names a stage among those that a rank has recorded.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "src/stage/stage.h"

namespace shardproof {

/// A stage that the verifier knows, or one as it is written: "stepped@3", "stepped@3.optimizer", a
/// stage of the subject's own.
class StageKey {
 public:
  StageKey() = default;                                   ///< none
  StageKey(Stage stage) : text_(NameOf(stage)) {}         // NOLINT: a stage is a key
  StageKey(std::string text) : text_(std::move(text)) {}  // NOLINT: so is what is written
  operator const std::string&() const { return text_; }   // NOLINT: as messages have it

  const std::string& text() const { return text_; }
  bool empty() const { return text_.empty(); }
  friend bool operator==(const StageKey&, const StageKey&) = default;

 private:
  std::string text_;
};

/// Whether the key is this stage's, at whatever step and of whatever: "stepped@3.optimizer" is
/// kStepped's.
inline bool IsAt(const StageKey& key, Stage stage) {
  const std::string_view text = key.text();
  return text.substr(0, text.find_first_of("@.")) == stage;
}

}  // namespace shardproof
