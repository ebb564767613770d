#include "verify/case/generate.h"

#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "verify/case/names.h"

namespace shardproof {
namespace {

// Draws, in the order of the calls: only within rc::gen::exec.

/// From low to high, both possible.
int64_t Between(int64_t low, int64_t high) { return *rc::gen::inRange<int64_t>(low, high + 1); }

/// True in `percent` of a hundred.
bool Chance(int percent) { return Between(1, 100) <= percent; }

template <typename T>
T OneOf(const std::vector<T>& choices) {
  return choices[static_cast<size_t>(Between(0, static_cast<int64_t>(choices.size()) - 1))];
}

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

/// A mesh of just `ranks`, of one to three axes in any order; an axis may have one rank.
std::vector<AxisCase> MeshOf(int64_t ranks, bool reference) {
  if (!reference) {
    // What a device mesh of a framework is made for: replicas of shards.
    for (const int64_t replicas : {2, 3}) {
      if (ranks % replicas == 0 && ranks > replicas && Chance(40)) {
        return {{"dp_replicate", replicas}, {"dp_shard", ranks / replicas}};
      }
    }
    return {{"dp_shard", ranks}};
  }
  std::vector<std::string> names = {"dp_shard", "dp_replicate", "tp", "ep", "cp"};
  const int64_t axes =
      ranks < 8 ? OneOf<int64_t>({1, 1, 2, 2, 3}) : OneOf<int64_t>({1, 2, 2, 3, 3});
  std::vector<AxisCase> mesh;
  for (int64_t axis = 0; axis < axes; ++axis) {
    std::vector<int64_t> sizes;
    for (int64_t size = 1; size <= ranks; ++size) {
      if (ranks % size == 0) sizes.push_back(size);
    }
    // Neither this axis nor the rest of them has one rank, mostly: an axis of one rank cuts
    // nothing.
    if (sizes.size() > 2 && Chance(80)) sizes = {sizes.begin() + 1, sizes.end() - 1};
    const int64_t size = axis + 1 == axes ? ranks : OneOf(sizes);
    ranks /= size;
    const bool usual = axis == 0 && Chance(50);
    const std::string name = usual ? names.front() : OneOf(names);
    std::erase(names, name);
    mesh.push_back({name, size});
  }
  return mesh;
}

/// How often it saves, what stays, and seldom that the newest save is damaged where it is read.
void MakeSaves(Case& made) {
  if (made.steps > 2 && Chance(60)) {
    made.training.save_every = Chance(70) ? 1 : Between(2, made.steps - 1);
  }
  if (Chance(40)) made.training.keep = Between(1, 3);
  const bool has_older = made.SavedSteps().size() > 1 && made.training.keep > 1;
  if (!has_older || made.device != "cpu" || !Chance(70)) return;
  made.faults.push_back({"file/rot", std::to_string(Between(0, 9999))});
}

/// A stage that every rank comes to, whatever the case.
std::string EarlyStage() {
  return OneOf<std::string>({"built", "sharded", "materialized", "ready"});
}

using Certain = FaultDraw::Certain;
using Anywhere = FaultDraw::Anywhere;

/// Those of the faults that a case may have, by how they are drawn.
class Choices {
 public:
  Choices(const std::vector<DrawnFault>& faults, const Case& made)
      : faults_(faults), ranks_(made.WorldSize()), is_simulated_(made.transport == "sim") {}

  std::vector<DrawnFault> ThatStrike(bool need_processes) const {
    return Those([&](const FaultDraw& draw) {
      return draw.certain != Certain::kNowhere && draw.needs_processes == need_processes;
    });
  }
  std::vector<DrawnFault> Somewhere(Anywhere anywhere) const {
    return Those([&](const FaultDraw& draw) { return draw.anywhere == anywhere; });
  }

 private:
  std::vector<DrawnFault> Those(const std::function<bool(const FaultDraw&)>& wanted) const {
    std::vector<DrawnFault> those;
    for (const DrawnFault& fault : faults_) {
      const FaultDraw& draw = fault.draw;
      const bool can = (!draw.needs_others || ranks_ > 1) &&
                       (!draw.only_simulated || is_simulated_) &&
                       (!draw.needs_processes || !is_simulated_);
      if (can && wanted(draw)) those.push_back(fault);
    }
    return those;
  }

  const std::vector<DrawnFault>& faults_;
  const int64_t ranks_;
  const bool is_simulated_;
};

/// Rank 0 comes by its first call whatever the case: it maps the checkpoint, makes what a save is
/// written into, writes, syncs and renames it, and reads it back.
FaultCase AtCertain(const DrawnFault& fault, const std::string& moment,
                    const std::string& allocation) {
  if (fault.draw.certain == Certain::kEarlyStage) return {fault.id, moment};
  return {fault.id, fault.draw.certain == Certain::kAllocation ? allocation : "0:0"};
}

/// Whether there is a byte to be damaged in what it saves.
bool SavesBytes(const Case& made) {
  return std::any_of(
      made.model.tensors.begin(), made.model.tensors.end(), [](const TensorCase& tensor) {
        return tensor.persistent && TensorBytes(tensor.dtype, tensor.shape).value_or(0) > 0;
      });
}

FaultCase FaultThatStrikes(const Case& made, const Choices& choices) {
  const int64_t ranks = made.WorldSize();
  if (made.transport != "sim" && Chance(40)) {
    const std::string moment = fmt::format("{}@{}", Between(0, ranks - 1), EarlyStage());
    const std::string allocation = fmt::format("{}:0", Between(0, 800));
    return AtCertain(OneOf(choices.ThatStrike(true)), moment, allocation);
  }
  const std::string rank = std::to_string(Between(0, ranks - 1));
  const std::string early = EarlyStage();
  if (SavesBytes(made) && Chance(8)) return {"file/rot", std::to_string(Between(0, 9999))};
  return AtCertain(OneOf(choices.ThatStrike(false)), rank + "@" + early, "0:0");
}

/// Anything, anywhere: it may never come to it.
FaultCase FaultSomewhere(const Case& made, const Choices& choices) {
  const bool trains = made.steps > 0;
  const std::string rank = std::to_string(Between(0, made.WorldSize() - 1));
  if (Chance(30)) {
    return {OneOf(choices.Somewhere(Anywhere::kCollective)).id,
            fmt::format("{}@#{}", rank, Between(0, trains ? 80 : 30))};
  }
  return {OneOf(choices.Somewhere(Anywhere::kCall)).id,
          fmt::format("{}:{}", Between(0, trains ? 40 : 12), rank)};
}

/// Two ranks of a world, another one each time.
std::pair<std::string, std::string> TwoRanks(int64_t ranks) {
  const int64_t one = Between(0, ranks - 1);
  return {std::to_string(one), std::to_string((one + Between(1, ranks - 1)) % ranks)};
}

/// Two that both strike: the first does not end the job, or the other strikes before the job has
/// heard of it, on another rank at the same stage.
std::vector<FaultCase> BothStrike(Case& made) {
  const int64_t ranks = made.WorldSize();
  const std::string any = std::to_string(Between(0, ranks - 1));
  if (!made.faults.empty())
    return {made.faults[0], {"rank/kill", any + "@resumed"}};  // restored from an older save
  if (ranks == 1 || Chance(10)) {
    return {{"file/slow", "0:0"},
            OneOf<FaultCase>(
                {{"file/fsync", "0:0"}, {"file/rename", "0:0"}, {"rank/kill", any + "@saved"}})};
  }
  const auto [a, b] = TwoRanks(ranks);
  if (made.transport != "sim" && Chance(30)) {
    return {{OneOf<std::string>({"store/gone", "rank/slow"}), a + "@built"},
            {OneOf<std::string>({"rank/kill", "rank/stop"}),
             b + "@" + OneOf<std::string>({"ready", "saved"})}};
  }
  if (Chance(50))
    return {{"file/fsync", "0:" + a},
            {OneOf<std::string>({"file/fsync", "file/enospc"}), "0:" + b}};
  const std::string stage = EarlyStage();
  const std::vector<std::string> lost = {"rank/kill", "rank/leave"};
  return {{OneOf(lost), a + "@" + stage}, {OneOf(lost), b + "@" + stage}};
}

/// One fault, or two: such that both strike, or of which either may come first, beside one that
/// strikes early for certain, or one that strikes late if the other has not.
void MakeFaults(Case& made, const std::vector<DrawnFault>& faults) {
  const int64_t ranks = made.WorldSize();
  made.as_stated = true;
  made.device = "cpu";
  // What is lost without a process being gone is known after this, over real transports.
  if (made.transport != "sim") made.deadline_ms = 6000;
  if (Chance(50)) {
    made.faults = BothStrike(made);
    return;
  }
  const Choices choices(faults, made);
  const bool is_late = Chance(50);
  const std::string at_the_end = std::to_string(Between(0, ranks - 1)) + "@saved";
  made.faults = {is_late ? FaultCase{"rank/kill", at_the_end} : FaultThatStrikes(made, choices)};
  if (is_late || Chance(40)) made.faults.push_back(FaultSomewhere(made, choices));
}

Case DrawCase(const GenerateOptions& options) {
  const bool reference = options.subject == "reference";
  const auto world = [&] {
    if (options.world > 0) return options.world;
    return std::min(options.world_max,
                    OneOf<int64_t>({1, 2, 2, 3, 3, 4, 4, 4, 5, 6, 7, 8, 12, 16}));
  };
  Case made;
  made.subject = options.subject;
  made.model = ModelMaker(options).Make();
  const int64_t ranks = world();
  made.mesh = MeshOf(ranks, reference);
  if (Chance(70)) {
    // On as many ranks or fewer: a launcher that has so many can run it.
    made.resume_mesh = MeshOf(Between(1, ranks), reference);
  }
  made.seed = static_cast<uint64_t>(Between(0, (int64_t{1} << 53) - 1));
  if (!reference) return made;
  made.transport = options.transport;
  const NameTable& strategies = KnownStrategies();
  made.strategy = std::string(strategies[Between(0, static_cast<int64_t>(strategies.size()) - 1)]);
  if (Chance(15)) made.device = "apart";
  if (Chance(30)) made.optimizer = "before-sharding";
  uint64_t bytes = 0;
  for (const TensorCase& tensor : made.model.tensors) {
    bytes += TensorBytes(tensor.dtype, tensor.shape).value_or(0);
  }
  if (Chance(12)) {  // takes as long as five that do not train
    made.steps = OneOf<int64_t>({2, 2, 3, 4});
    if (Chance(30)) made.training.clip_norm = OneOf<double>({0, 0.01, 1000});
    if (Chance(30)) made.training.moments = "BF16";
    made.training.masters = Chance(70);
    if (Chance(30)) made.training.unfreeze_after = Between(1, made.steps - 1);
    if (Chance(40)) made.training.offload = OneOf<double>({0.25, 0.5, 1});
    made.training.overlap = Chance(70);
    MakeSaves(made);
    made.training.async = Chance(30);
    if (Chance(40)) made.training.format = "safetensors";
    made.training.split_fused = Chance(30);
  }
  // What is restored with a training job besides its model: up to three tensors a parameter, and
  // every rank's generator.
  if (made.steps > 0) bytes = 4 * bytes + 5056 * static_cast<uint64_t>(ranks);
  if (Chance(60)) {
    const auto bucket =
        static_cast<uint64_t>(OneOf<int64_t>({1, 7, 60, 120, 256, 1000, 4096, 65536}));
    made.bucket_bytes = std::max(bucket, bytes / 64);  // a case has no thousands of collectives
  }
  if (Chance(30)) made.max_file_bytes = std::max<uint64_t>(bytes / 8, Between(16, 4096));
  made.leftovers = Chance(25);
  if (!options.faults.empty() && !options.large && Chance(10)) MakeFaults(made, options.faults);
  return made;
}

}  // namespace

Case GenerateCase(const GenerateOptions& options, uint64_t seed, uint64_t index) {
  constexpr int kSize = 100;  // of nothing: no generator here grows with it
  const auto generator = rc::gen::exec([&options] { return DrawCase(options); });
  const rc::Random random(rc::Random::Key{seed, index, 0, 0});
  Case made = generator(random, kSize).value();
  made.why = fmt::format("case {} of seed {}", index, seed);
  return made;
}

}  // namespace shardproof
