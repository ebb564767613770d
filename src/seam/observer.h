// The seam to whoever watches. The pipeline says what it has reached; it never learns what is done
// with that.
#pragma once

#include <string>
#include <vector>

#include "src/stage/stage.h"

namespace shardproof {

struct Model;

class Observer {
 public:
  virtual ~Observer() = default;
  /// The rank begins to work towards `stage`.
  virtual void Enter(Stage stage) = 0;
  /// The rank has reached `stage`; `model` is as it stands there.
  virtual void Reached(Stage stage, int64_t step, const Model& model) = 0;
  /// Keys the source lacks and keys it has besides, as the pipeline matched them.
  virtual void Keys(const std::vector<std::string>& missing,
                    const std::vector<std::string>& unexpected) = 0;
  /// Something that nobody asked for and that is no error, in one line: an older checkpoint was
  /// loaded.
  virtual void Notice(const std::string&) {}
};

}  // namespace shardproof
