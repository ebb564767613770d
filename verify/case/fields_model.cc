// The tables of a model's fields: its own, and of its tensors.
#include "verify/case/fields.h"
#include "verify/case/names.h"

namespace shardproof {
namespace {

constexpr uint64_t kSizeMax = uint64_t{1} << 40;  // of one tensor dim
constexpr uint64_t kFilesMax = 1024;
constexpr uint64_t kLoraRankMax = 1 << 16;
constexpr RealBounds kAboveZero = {.low = 0, .excludes_low = true};

/// Of a fully qualified name.
constexpr const char* kNameSchema =
    R"({"minLength": 1, "maxLength": 1024, "pattern":
        "^(?!__metadata__$)[^.\\u0000-\\u001f\\u007f]+(\\.[^.\\u0000-\\u001f\\u007f]+)*$"})";
constexpr const char* kNamesSchema =
    R"({"uniqueItems": true, "items": {"type": "string", "minLength": 1, "maxLength": 1024,
        "pattern":
        "^(?!__metadata__$)[^.\\u0000-\\u001f\\u007f]+(\\.[^.\\u0000-\\u001f\\u007f]+)*$"}})";

/// With the model, the mesh or the fault that it is a part of.
const FieldDraw kWithWhole = {.how = FieldDraw::How::kWithAnother, .for_subjects = true};

const FieldTable<ModelCase> kModelFields = {
    {&ModelCase::checkpoint,
     {.name = "checkpoint",
      .doc = "Hugging Face directory: config.json and safetensors.",
      .required = true,
      .schema = R"({"minLength": 1})",
      .source = ModelSource::kCheckpoint,
      .option = {.name = "--checkpoint",
                 .help = "Hugging Face directory: config.json and safetensors files",
                 .type_name = "DIR",
                 .group = OptionGroup::kModel,
                 .by_hand = true}}},
    {&ModelCase::factory,
     {.name = "factory",
      .doc = "For a subject: \"FILE.py:FUNCTION\", which returns the model as an nn.Module. The "
             "checkpoint then needs no config.json.",
      .left_out_as_usual = true,
      .schema = R"({"minLength": 1})",
      .source = ModelSource::kCheckpoint,
      .option = {.name = "--model",
                 .help = "Function that returns a subject's model as an nn.Module, if no "
                         "config.json of the checkpoint describes it",
                 .type_name = "FILE.py:FUNCTION",
                 .group = OptionGroup::kFramework,
                 .by_hand = true}}},
    {&ModelCase::adapter,
     {.name = "adapter",
      .doc = "PEFT directory of a LoRA adapter of the model: adapter_config.json and "
             "adapter_model.safetensors. Not beside lora.",
      .left_out_as_usual = true,
      .schema = R"({"minLength": 1})",
      .source = ModelSource::kCheckpoint,
      .option = {.name = "--adapter",
                 .help = "PEFT directory of a LoRA adapter to load with the model",
                 .type_name = "DIR",
                 .group = OptionGroup::kModel,
                 .by_hand = true},
      .copied = true}},
    {&ModelCase::lora,
     {.name = "lora",
      .doc = "Low-rank adapters that the run makes of linear layers, without a file of their "
             "values.",
      .left_out_as_usual = true,
      .source = ModelSource::kCheckpoint,
      .option = {.name = "--lora",
                 .help = "Add a newly initialised LoRA adapter to the reference's model: "
                         "RANK:TARGET,..., such as 8:q_proj,v_proj or 8:all-linear; a subject "
                         "makes its own, or loads that of --adapter",
                 .type_name = "LORA",
                 .group = OptionGroup::kModel,
                 .by_hand = true}}},
    {&ModelCase::from_scratch,
     {.name = "from_scratch",
      .doc = "Only config.json is read: every tensor begins with its initial value.",
      .left_out_as_usual = true,
      .source = ModelSource::kCheckpoint,
      .option = {.name = "--from-scratch",
                 .help = "Read only config.json of the checkpoint and initialise every tensor",
                 .group = OptionGroup::kModel},
      .copied = true}},
    {&ModelCase::tensors,
     {.name = "tensors",
      .doc = "The verifier writes the checkpoint from the seed.",
      .required = true,
      .schema = R"({"minItems": 1})",
      .source = ModelSource::kSynthetic,
      .draw = kWithWhole,
      .shrink = FieldShrink::kElsewhere}},
    {&ModelCase::files,
     {.name = "files",
      .doc = "Number of safetensors files.",
      .integers = {1, kFilesMax},
      .source = ModelSource::kSynthetic,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault,
      .feature = {"many files"}}},
    {&ModelCase::stray_file,
     {.name = "stray_file",
      .doc = "Whether beside a synthetic checkpoint lies a safetensors file that it does not name, "
             "with other values under the same keys, as an earlier save into more files leaves it.",
      .left_out_as_usual = true,
      .source = ModelSource::kSynthetic,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault,
      .feature = {"a stray file"}}},
    {&ModelCase::every_tied_name,
     {.name = "every_tied_name",
      .doc = "Whether a synthetic checkpoint holds tied tensors under each of their names, as many "
             "real ones do.",
      .left_out_as_usual = true,
      .source = ModelSource::kSynthetic,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault,
      .feature = {"every tied name"}}},
    {&ModelCase::format,
     {.name = "format",
      .doc = "Of the files of a synthetic checkpoint that a run of the reference reads. `dcp`: "
             "torch.distributed.checkpoint, in chunks and with bytes as other writers may have "
             "them.",
      .left_out_as_usual = true,
      .names = KnownSaveFormats,
      .source = ModelSource::kSynthetic,
      .draw = {.how = FieldDraw::How::kWithAnother},
      .shrink = FieldShrink::kToDefault,
      .feature = {"a DCP source"}}},
    {&ModelCase::unexpected,
     {.name = "unexpected",
      .doc = "Names of further tensors that the checkpoint may hold. A synthetic checkpoint holds "
             "them.",
      .schema = kNamesSchema,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault,
      .feature = {"unexpected keys"},
      .option = {.name = "--allow-unexpected",
                 .help = "The checkpoint may hold this tensor, which the model lacks; may be "
                         "repeated",
                 .type_name = "TENSOR",
                 .group = OptionGroup::kModel}}},
    {&ModelCase::ties,
     {.name = "ties",
      .doc = "Groups of names that share one storage.",
      .schema = R"({"items": {"type": "array", "items": {"type": "string"}, "minItems": 2,
                              "uniqueItems": true}})",
      .source = ModelSource::kSynthetic,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault,
      .feature = {"ties"}}},
    {&ModelCase::missing,
     {.name = "missing",
      .doc = "Names that the checkpoint is allowed to lack. A synthetic checkpoint lacks them; "
             "they must name tensors.",
      .schema = R"({"uniqueItems": true})",
      .draw = kWithWhole,
      .shrink = FieldShrink::kByHand,
      .feature = {"missing keys"},
      .option = {.name = "--allow-missing",
                 .help = "The checkpoint may lack this tensor, which is then initialised; may be "
                         "repeated",
                 .type_name = "TENSOR",
                 .group = OptionGroup::kModel}}}};

const FieldTable<LoraCase> kLoraFields = {
    {&LoraCase::rank,
     {.name = "rank",
      .doc = "The rank of the two factors of every adapted layer.",
      .required = true,
      .integers = {1, kLoraRankMax}}},
    {&LoraCase::targets,
     {.name = "targets",
      .doc = "Names of modules: whole, or their ends after a dot; or just all-linear, which is all "
             "but lm_head.",
      .required = true,
      .schema = R"({"minItems": 1, "items": {"type": "string", "minLength": 1}})"}}};

const FieldTable<TensorCase> kTensorFields = {
    {&TensorCase::name,
     {.name = "name",
      .doc = "Fully qualified name; dots make the module tree. Not empty, no empty part, no "
             "control character.",
      .required = true,
      .schema = kNameSchema,
      .draw = kWithWhole,
      .shrink = FieldShrink::kElsewhere}},
    {&TensorCase::kind,
     {.name = "kind",
      .doc = "How the module holds it.",
      .names = KnownKinds,
      .draw = kWithWhole,
      .shrink = FieldShrink::kElsewhere}},
    {&TensorCase::persistent,
     {.name = "persistent",
      .doc = "Buffers only: whether it is in the state dict. Non-persistent buffers are the ones "
             "that loaders forget.",
      .left_out_as_usual = true,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault,
      .feature = {"buffer.non-persistent"}}},
    {&TensorCase::dtype,
     {.name = "dtype",
      .doc = "safetensors' name of the element type.",
      .required = true,
      .names = KnownDtypes,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault,
      .feature = {"dtype", true}}},
    {&TensorCase::shape,
     {.name = "shape",
      .doc = "Global shape. A size that the mesh does not divide, or 0, is legal and worth "
             "testing.",
      .required = true,
      .integers = {0, kSizeMax},
      .schema = R"({"maxItems": 16})",
      .draw = kWithWhole,
      .shrink = FieldShrink::kElsewhere}},
    {&TensorCase::strides,
     {.name = "strides",
      .doc = "Strides in the built model, in elements, one for each dim; row-major if not given. "
             "No two elements share memory. Loading keeps the order that they give the dims in "
             "memory.",
      .left_out_as_usual = true,
      .integers = {1, kSizeMax},
      .schema = R"({"maxItems": 16})",
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault}},
    {&TensorCase::requires_grad,
     {.name = "requires_grad",
      .doc = "Parameters only: whether it is trained.",
      .left_out_as_usual = true,
      .draw = kWithWhole,
      .shrink = FieldShrink::kElsewhere}},
    {&TensorCase::attributes,
     {.name = "attributes",
      .doc = "User attributes of the parameter that must survive every stage.",
      .left_out_as_usual = true,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault,
      .feature = {"attributes"}}},
    {&TensorCase::init,
     {.name = "init",
      .doc = "The value of a key that the checkpoint lacks; src/model/initial_value.h states the "
             "formula.",
      .left_out_as_usual = true,
      .names = KnownInits,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault}},
    {&TensorCase::values,
     {.name = "values",
      .doc = "What a synthetic checkpoint holds. `normal`: no two neighbours alike, and no 0, NaN "
             "or infinity. `special`: some elements of a floating-point tensor are NaN of several "
             "payloads, infinite, -0.0 or subnormal.",
      .left_out_as_usual = true,
      .names = KnownValues,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault,
      .feature = {"values.special"}}},
    {&TensorCase::built_real,
     {.name = "built_real",
      .doc = "Created on the real device although the model is on meta, as buffers often are.",
      .left_out_as_usual = true,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault,
      .feature = {"buffer.built on a real device"}}},
    {&TensorCase::rope,
     {.name = "rope",
      .doc =
          "Makes this a buffer of RoPE inverse frequencies: F32, non-persistent, one dim. Fields "
          "that a kind does not use are ignored.",
      .left_out_as_usual = true,
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault}},
    {&TensorCase::stored,
     {.name = "stored",
      .doc = "How checkpoints store it if not under its own name. Each way is a list of keys whose "
             "tensors, one after the other in row-major order, make it up. The first way whose "
             "keys exist is used; its own name is tried last.",
      .left_out_as_usual = true,
      .draw = kWithWhole,
      .shrink = FieldShrink::kElsewhere,
      .feature = {"stored under other keys"}}},
    {&TensorCase::stored_as,
     {.name = "stored_as",
      .doc = "Index of the way in `stored` that a synthetic checkpoint uses; beyond the last, the "
             "tensor's own name is used.",
      .left_out_as_usual = true,
      .integers = {0, kSizeMax},
      .draw = kWithWhole,
      .shrink = FieldShrink::kToDefault,
      .feature = {"stored under keys of second choice"}}}};

const FieldTable<StoredCase> kStoredFields = {{&StoredCase::key,
                                               {.name = "key",
                                                .doc = "The key in the checkpoint.",
                                                .required = true,
                                                .schema = R"({"minLength": 1})",
                                                .draw = kWithWhole}},
                                              {&StoredCase::shape,
                                               {.name = "shape",
                                                .doc = "The shape of the tensor under this key.",
                                                .required = true,
                                                .integers = {0, kSizeMax},
                                                .draw = kWithWhole}}};

const FieldTable<RopeCase> kRopeFields = {
    {&RopeCase::type,
     {.name = "rope_type",
      .doc = "The formula of the frequencies, as Transformers names it.",
      .required = true,
      .names = KnownRopes,
      .draw = kWithWhole,
      .feature = {"rope", true}}},
    {&RopeCase::theta,
     {.name = "rope_theta", .doc = "Base of the powers.", .reals = kAboveZero, .draw = kWithWhole}},
    {&RopeCase::dim,
     {.name = "dim",
      .doc = "Rotary dims, the divisor of the exponents; 0: twice the length.",
      .left_out_as_usual = true,
      .integers = {0, kSizeMax}}},
    {&RopeCase::factor,
     {.name = "factor",
      .doc = "For linear, yarn, llama3 and proportional.",
      .left_out_as_usual = true,
      .reals = kAboveZero,
      .draw = kWithWhole}},
    {&RopeCase::low_freq_factor,
     {.name = "low_freq_factor",
      .doc = "For llama3.",
      .left_out_as_usual = true,
      .reals = kAboveZero}},
    {&RopeCase::high_freq_factor,
     {.name = "high_freq_factor",
      .doc = "For llama3.",
      .left_out_as_usual = true,
      .reals = kAboveZero}},
    {&RopeCase::original_max_position_embeddings,
     {.name = "original_max_position_embeddings",
      .doc = "For yarn and llama3, which need it.",
      .left_out_as_usual = true,
      .integers = {0, kSizeMax},
      .draw = kWithWhole}},
    {&RopeCase::beta_fast,
     {.name = "beta_fast", .doc = "For yarn.", .left_out_as_usual = true, .reals = kAboveZero}},
    {&RopeCase::beta_slow,
     {.name = "beta_slow", .doc = "For yarn.", .left_out_as_usual = true, .reals = kAboveZero}},
    {&RopeCase::truncate,
     {.name = "truncate",
      .doc = "For yarn: whether the ramp's ends are whole numbers.",
      .left_out_as_usual = true}},
    {&RopeCase::short_factor,
     {.name = "short_factor",
      .doc = "For longrope: one for each frequency.",
      .left_out_as_usual = true,
      .reals = kAboveZero,
      .draw = kWithWhole}},
    {&RopeCase::rotated,
     {.name = "rotated",
      .doc = "For proportional: how many leading frequencies are not 0.",
      .left_out_as_usual = true,
      .integers = {0, kSizeMax},
      .draw = kWithWhole}}};

const FieldTable<AxisCase> kAxisFields = {
    {&AxisCase::name,
     {.name = "name",
      .doc = "dp_shard shards parameters, dp_replicate replicates them (HSDP), tp is a data-only "
             "tensor-parallel axis, ep is the expert mesh. A subject's axes have any names.",
      .required = true,
      .schema = R"({"minLength": 1})",
      .draw = kWithWhole}},
    {&AxisCase::size,
     {.name = "size",
      .doc = "Ranks along this axis.",
      .required = true,
      .integers = {1, kRanksMax},
      .draw = kWithWhole}},
    {&AxisCase::over,
     {.name = "over",
      .doc = "For a subject: names of other axes of the mesh whose ranks this one divides, as ep "
             "does over dp_shard. It is the inner part of them; what is left of them is the outer "
             "part. If empty, the axis multiplies the world size.",
      .left_out_as_usual = true,
      .draw = kWithWhole}}};

const FieldTable<FaultCase> kFaultFields = {
    {&FaultCase::id,
     {.name = "id",
      .doc = "An id that `list faults` shows.",
      .required = true,
      .schema = R"({"minLength": 1})",
      .draw = kWithWhole}},
    {&FaultCase::where,
     {.name = "where",
      .doc = "Where the fault acts, as `list faults` describes it.",
      .draw = kWithWhole}}};

}  // namespace

const FieldTable<ModelCase>& ModelFields() { return kModelFields; }

const FieldTable<ModelCase>& FieldsOfModelFrom(ModelSource source) {
  const auto only = [](ModelSource wanted) {
    FieldTable<ModelCase> table;
    for (const auto& field : kModelFields) {
      if (field.row.source == ModelSource::kEither || field.row.source == wanted) {
        table.push_back(field);
      }
    }
    return table;
  };
  static const FieldTable<ModelCase> of_checkpoint = only(ModelSource::kCheckpoint);
  static const FieldTable<ModelCase> synthetic = only(ModelSource::kSynthetic);
  return source == ModelSource::kCheckpoint ? of_checkpoint : synthetic;
}

const FieldTable<LoraCase>& LoraFields() { return kLoraFields; }
const FieldTable<TensorCase>& TensorFields() { return kTensorFields; }
const FieldTable<StoredCase>& StoredFields() { return kStoredFields; }
const FieldTable<RopeCase>& RopeFields() { return kRopeFields; }
const FieldTable<AxisCase>& AxisFields() { return kAxisFields; }
const FieldTable<FaultCase>& FaultFields() { return kFaultFields; }

}  // namespace shardproof
