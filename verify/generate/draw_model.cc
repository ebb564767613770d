#include "verify/generate/draw_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "verify/case/names.h"
#include "verify/generate/draw.h"

namespace shardproof::draw {
namespace {

/// Sizes on either side of what is usual: prime, odd, a power of two and its neighbours.
int64_t Size() {
  return Chance(3) ? 0 : OneOf<int64_t>({1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 31});
}

bool IsFloat(const std::string& dtype) { return dtype.front() == 'F' || dtype == "BF16"; }
bool HasGradient(const std::string& dtype) {
  return (IsFloat(dtype) && !dtype.starts_with("F8")) || dtype == "C64";
}

std::string AnyDtype() {
  const NameTable& known = KnownDtypes();
  return std::string(
      known[static_cast<size_t>(Between(0, static_cast<int64_t>(known.size()) - 1))]);
}

/// The model while it is drawn.
class ModelMaker {
 public:
  explicit ModelMaker(const GenerateOptions& options)
      : options_(options),
        dtype_(OneOf<std::string>({"F32", "F32", "BF16", "BF16", "F16", "F64"})) {}

  ModelCase Make() {
    const int64_t modules = OneOf<int64_t>({1, 1, 2, 2, 3, 4, 5, 8});
    for (int64_t i = 0; i < modules; ++i) AddModule();
    if (!IsReference()) AddLinear();  // a model without a parameter is none to them
    if (options_.large) AddLarge();
    if (Chance(30)) AddTie();
    model_.every_tied_name = !model_.ties.empty() && Chance(30);
    if (Chance(25)) DropKeys();
    if (Chance(20)) AddUnexpected();
    if (Chance(20)) StoreByOtherWays();
    if (Chance(20)) model_.files = Between(2, 4);
    model_.stray_file = IsReference() && !options_.large && Chance(15);
    if (Chance(15))
      for (TensorCase& tensor : model_.tensors) tensor.values = "special";
    if (Chance(20)) Freeze();
    if (!IsReference()) KeepWhatFrameworksHave();
    return std::move(model_);
  }

 private:
  bool IsReference() const { return options_.subject == "reference"; }

  /// A path of modules that ends in `own`, of its own number so that none is there twice.
  std::string Path(const std::string& own) {
    std::string path;
    const int64_t depth = OneOf<int64_t>({0, 0, 1, 1, 2, 3, 5});
    for (int64_t i = 0; i < depth; ++i) {
      const std::string word = OneOf<std::string>(
          {"model", "language_model", "layers", "blocks", "self_attn", "mlp", "visual", "encoder"});
      path += word + (word.back() == 's' ? fmt::format(".{}", Between(0, 11)) : "") + ".";
    }
    return path + fmt::format("{}_{}", own, made_++);
  }

  TensorCase& Add(const std::string& name, std::vector<int64_t> shape, const std::string& dtype) {
    TensorCase& tensor = model_.tensors.emplace_back();
    tensor.name = name;
    tensor.shape = std::move(shape);
    tensor.dtype = dtype;
    tensor.requires_grad = HasGradient(dtype);
    if (options_.attributes && Chance(12))
      tensor.attributes["tensor_model_parallel"] = Chance(50) ? "true" : "false";
    if (Chance(5)) tensor.init = OneOf<std::string>({"ones", "zeros"});
    return tensor;
  }

  TensorCase& AddBuffer(const std::string& name, std::vector<int64_t> shape,
                        const std::string& dtype, bool persistent) {
    TensorCase& buffer = Add(name, std::move(shape), dtype);
    buffer.kind = "buffer";
    buffer.persistent = persistent;
    buffer.requires_grad = false;
    buffer.built_real = Chance(40);
    return buffer;
  }

  void AddModule() {
    using Maker = void (ModelMaker::*)();
    static const std::vector<Maker> kinds = {
        &ModelMaker::AddLinear,   &ModelMaker::AddLinear,    &ModelMaker::AddLinear,
        &ModelMaker::AddNorm,     &ModelMaker::AddEmbedding, &ModelMaker::AddAnything,
        &ModelMaker::AddAnything, &ModelMaker::AddExperts,   &ModelMaker::AddRouter,
        &ModelMaker::AddRotary,   &ModelMaker::AddRotary,    &ModelMaker::AddStatistics,
        &ModelMaker::AddAdapter,  &ModelMaker::AddCodes,     &ModelMaker::AddCache,
        &ModelMaker::AddPrefixed};
    (this->*OneOf(kinds))();
  }

  void AddLinear() {
    const std::string path = Path(OneOf<std::string>({"q", "up", "w"}));
    const std::string module =
        path + "." + OneOf<std::string>({"q_proj", "o_proj", "down_proj", "up_proj", "linear"});
    const int64_t rows = Size();
    Add(module + ".weight", {rows, Size()}, dtype_);
    if (Chance(20)) LayOut(model_.tensors.back());
    if (Chance(30)) Add(module + ".bias", {rows}, dtype_);
  }

  void AddNorm() { Add(Path("norm") + ".weight", {Size()}, dtype_).init = "ones"; }

  void AddEmbedding() { Add(Path("embed_tokens") + ".weight", {Size(), Size()}, dtype_); }

  /// Any dtype, up to five dims, 0-dim and one element too; sometimes larger than what is kept
  /// inline.
  void AddAnything() {
    const int64_t dims = OneOf<int64_t>({0, 0, 1, 1, 2, 3, 4, 5});
    std::vector<int64_t> shape;
    for (int64_t dim = 0; dim < dims; ++dim) {
      shape.push_back(dims > 3 ? Between(1, 4) : Chance(20) ? 1 : Size());
    }
    if (dims == 2 && Chance(15)) shape = {Between(60, 200), Between(20, 60)};
    Add(Path("any") + ".table", std::move(shape), AnyDtype());
    if (Chance(30)) LayOut(model_.tensors.back());
  }

  /// Dims in memory in any order, such as that of a transposed matrix or of images with channels
  /// last; now and then with gaps, as a slice of something larger has.
  void LayOut(TensorCase& tensor) {
    std::vector<size_t> order;
    for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
      order.insert(order.begin() + Between(0, static_cast<int64_t>(dim)), dim);
    }
    tensor.strides = StridesInOrder(tensor.shape, order);
    if (Chance(25))
      for (int64_t& stride : tensor.strides) stride *= 2;
  }

  /// Packed in memory, one key an expert (or two) in the checkpoint.
  void AddExperts() {
    const std::string module = Path("moe") + ".mlp.experts";
    const int64_t experts = OneOf<int64_t>({1, 2, 3, 4, 8, 11});
    const int64_t rows = Between(1, 5);
    const int64_t columns = Between(1, 4);
    TensorCase& gate_up = Add(module + ".gate_up_proj", {experts, 2 * rows, columns}, dtype_);
    auto& both = gate_up.stored.emplace_back();
    for (int64_t expert = 0; expert < experts; ++expert) {
      for (const char* half : {"gate_proj", "up_proj"}) {
        both.push_back({fmt::format("{}.{}.{}.weight", module, expert, half), {rows, columns}});
      }
    }
    TensorCase& down = Add(module + ".down_proj", {experts, columns, rows}, dtype_);
    auto& one = down.stored.emplace_back();
    for (int64_t expert = 0; expert < experts; ++expert) {
      one.push_back({fmt::format("{}.{}.down_proj.weight", module, expert), {columns, rows}});
    }
  }

  void AddRouter() {
    const std::string module = Path("router");
    const int64_t experts = Between(1, 9);
    Add(module + ".gate.weight", {experts, Size()}, dtype_);
    AddBuffer(module + ".expert_bias", {experts}, "F32", true).init = "zeros";
    if (Chance(30)) AddBuffer(module + ".tokens_per_expert", {experts}, "I64", true);
  }

  void AddRotary() {
    const std::string module = Path("rotary_emb");
    RopeCase rope;
    rope.theta = OneOf<double>({10000.0, 500000.0, 1000000.0, 100.0});
    const int64_t count = Between(1, 32);
    static const NameTable& kinds = KnownRopes();
    if (Chance(50))
      rope.type = std::string(kinds[Between(0, static_cast<int64_t>(kinds.size()) - 1)]);
    if (rope.type != "default") rope.factor = OneOf<double>({2.0, 4.0, 8.0});
    if (rope.type == "yarn" || rope.type == "llama3") {
      rope.original_max_position_embeddings = OneOf<int64_t>({64, 4096, 8192});
    }
    if (rope.type == "longrope") {
      for (int64_t i = 0; i < count; ++i) {
        rope.short_factor.push_back(1.0 + 0.25 * static_cast<double>(Between(0, 20)));
      }
    }
    if (rope.type == "proportional") rope.rotated = Between(1, count);
    for (const char* name : {".inv_freq", ".original_inv_freq"}) {
      TensorCase& buffer = AddBuffer(module + name, {count}, "F32", false);
      buffer.rope = rope;
      buffer.init = TensorCase().init;
      if (Chance(60)) break;
    }
  }

  void AddStatistics() {
    const std::string module = Path("batch_norm");
    const int64_t features = Size();
    AddBuffer(module + ".running_mean", {features}, "F32", true);
    AddBuffer(module + ".num_batches_tracked", {}, "I64", true);
  }

  /// A frozen layer under its own key, and a low-rank one that mostly begins here; now and then a
  /// row of it is longer than what is initialised at a time.
  void AddAdapter() {
    const std::string module = Path("adapted") + ".q_proj";
    const int64_t rows = Between(1, 9);
    const int64_t columns = Chance(10) ? Between(4097, 5000) : Between(1, 9);
    const int64_t rank = Between(1, 4);
    TensorCase& base = Add(module + ".base_layer.weight", {rows, columns}, dtype_);
    base.requires_grad = false;
    base.stored = {{{module + ".weight", {rows, columns}}}};
    Add(module + ".lora_A.default.weight", {rank, columns}, "F32").init = "uniform";
    Add(module + ".lora_B.default.weight", {rows, rank}, "F32").init = "zeros";
    if (Chance(20)) return;
    model_.missing.push_back(module + ".lora_A.default.weight");
    model_.missing.push_back(module + ".lora_B.default.weight");
  }

  void AddCodes() {
    const std::string module = Path("quantised") + ".down_proj";
    const int64_t rows = Between(1, 17);
    Add(module + ".weight", {rows, Size()}, OneOf<std::string>({"F8_E4M3", "F8_E5M2", "I8"}));
    Add(module + ".weight_scale", {rows, 1}, "F32").requires_grad = false;
  }

  void AddCache() { AddBuffer(Path("cache") + ".mask", {Size(), Size()}, AnyDtype(), Chance(30)); }

  /// A part of a composite model that checkpoints keep under another prefix.
  void AddPrefixed() {
    const std::string path = Path("tower");
    const std::string prefix = OneOf<std::string>({"visual.", "tower."});
    TensorCase& tensor = Add(prefix + path + ".weight", {Between(1, 9), Between(1, 9)}, dtype_);
    tensor.stored = {{{"model.visual." + path + ".kernel", tensor.shape}}};
    if (Chance(50)) tensor.stored.push_back({{"vision_tower." + path + ".kernel", tensor.shape}});
  }

  void AddLarge() {
    // Twice the bucket and the slack that a full copy must exceed.
    Add(Path("large") + ".weight", {Between(12000, 13000), 1024}, "F32");
  }

  void AddTie() {
    std::vector<size_t> able;
    for (size_t i = 0; i < model_.tensors.size(); ++i) {
      const TensorCase& tensor = model_.tensors[i];
      // Frameworks tie parameters.
      if (tensor.persistent && (IsReference() || tensor.kind == "parameter")) able.push_back(i);
    }
    if (able.empty()) return;
    const TensorCase tied = model_.tensors[OneOf(able)];
    std::vector<std::string> names = {tied.name};
    const int64_t more = Chance(25) ? 2 : 1;
    // The first name of a tie decides about the tensor, also where the model has another one
    // earlier.
    const bool earlier = Chance(40);
    for (int64_t i = 0; i < more; ++i) {
      TensorCase other = tied;
      other.stored.clear();
      other.name = Path(OneOf<std::string>({"lm_head", "shared"})) + ".weight";
      names.push_back(other.name);
      model_.tensors.insert(earlier ? model_.tensors.begin() : model_.tensors.end(),
                            std::move(other));
    }
    model_.ties.push_back(std::move(names));
  }

  void DropKeys() {
    const std::set<std::string> already(model_.missing.begin(), model_.missing.end());
    for (const TensorCase& tensor : model_.tensors) {
      if (tensor.persistent && !already.contains(tensor.name) && Chance(30)) {
        model_.missing.push_back(tensor.name);
      }
    }
  }

  void AddUnexpected() {
    const int64_t count = Between(1, 3);
    for (int64_t i = 0; i < count; ++i) model_.unexpected.push_back(Path("old") + ".extra");
    // As files have them that were written when the buffer was still saved.
    for (const TensorCase& tensor : model_.tensors) {
      if (!tensor.persistent && Chance(40)) model_.unexpected.push_back(tensor.name);
    }
  }

  void StoreByOtherWays() {
    for (TensorCase& tensor : model_.tensors) {
      const auto ways = static_cast<int64_t>(tensor.stored.size());
      if (ways > 0 && Chance(60)) tensor.stored_as = Between(1, ways);
    }
  }

  /// Frameworks shard contiguous floating-point parameters of at least one dim, from keys of the
  /// same names. One without an element is none to them: FSDP2 gives it a shard of no rows, and
  /// then cannot fill that.
  void KeepWhatFrameworksHave() {
    for (TensorCase& tensor : model_.tensors) {
      tensor.stored.clear();
      tensor.stored_as = 0;
      tensor.strides.clear();
      if (tensor.kind != "parameter") continue;
      if (tensor.shape.empty()) tensor.shape = {1};
      for (int64_t& size : tensor.shape) size = std::max<int64_t>(size, 1);
      if (!IsFloat(tensor.dtype) || tensor.dtype.starts_with("F8")) tensor.dtype = dtype_;
    }
  }

  void Freeze() {
    for (TensorCase& tensor : model_.tensors) {
      const bool tied = std::any_of(model_.ties.begin(), model_.ties.end(), [&](const auto& tie) {
        return std::find(tie.begin(), tie.end(), tensor.name) != tie.end();
      });
      if (!tied && Chance(50)) tensor.requires_grad = false;
    }
  }

  const GenerateOptions& options_;
  std::string dtype_;
  ModelCase model_;
  int64_t made_ = 0;
};

}  // namespace

ModelCase Model(const GenerateOptions& options) { return ModelMaker(options).Make(); }

}  // namespace shardproof::draw
