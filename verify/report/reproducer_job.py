"""The job of a case of the reference pipeline as C++: its model, its options and its checkpoint."""

import json
import os
import textwrap

from reproducer_shared import NotShown, quoted

EMBEDDED_BYTES_MAX = 64 << 10
HEX_PER_LINE = 88
CONFIG_FILES = ("config.json", "adapter_config.json")

STRATEGIES = {"rank0-broadcast": "kRank0Broadcast", "rank0-scatter": "kRank0Scatter",
              "each-reads-own": "kEachReadsOwn", "plain": "kPlain"}  # fmt: skip
ROPE_KINDS = {"default": "kDefault", "linear": "kLinear", "dynamic": "kDynamic", "yarn": "kYarn",
              "longrope": "kLongrope", "llama3": "kLlama3", "proportional": "kProportional"}  # fmt: skip
# Fields of RopeSpec in its order, and what a case calls them.
ROPE_FIELDS = {"theta": "rope_theta", "dim": "dim", "factor": "factor", "low_freq_factor": "low_freq_factor",
               "high_freq_factor": "high_freq_factor", "original_length": "original_max_position_embeddings",
               "beta_fast": "beta_fast", "beta_slow": "beta_slow", "truncate": "truncate",
               "short_factor": "short_factor", "rotated": "rotated"}  # fmt: skip


def cpp(value):
    """A literal: of a number, a flag, a text or a list of them."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "{" + ", ".join(map(cpp, value)) + "}"
    return repr(value)


def mesh_text(mesh):
    return ", ".join(f"{{{quoted(axis['name'])}, {axis['size']}}}" for axis in mesh)


# ---- the model -----------------------------------------------------------------------------------


def rope_text(rope):
    fields = [f".kind = RopeKind::{ROPE_KINDS[rope['rope_type']]}"]
    fields += [f".{name} = {cpp(rope[said])}" for name, said in ROPE_FIELDS.items() if said in rope]
    return "RopeSpec{" + ", ".join(fields) + "}"


def tensor_text(tensor):
    """A TensorSpec of what is not at its default."""
    buffer = tensor.get("kind") == "buffer"
    fields = [f".name = {quoted(tensor['name'])}"]
    if buffer:
        fields.append(".kind = TensorKind::kBuffer")
    if not tensor.get("persistent", True):
        fields.append(".persistent = false")
    if tensor["dtype"] != "F32":
        fields.append(f".dtype = *DtypeFromName({quoted(tensor['dtype'])})")
    fields.append(f".shape = {cpp(tensor['shape'])}")
    if tensor.get("strides"):
        fields.append(f".strides = {cpp(tensor['strides'])}")
    if buffer or not tensor.get("requires_grad", True):
        fields.append(".requires_grad = false")
    if tensor.get("attributes"):
        pairs = ", ".join(f"{{{quoted(name)}, {quoted(value)}}}" for name, value in tensor["attributes"].items())
        fields.append(f".attributes = {{{pairs}}}")
    if tensor.get("init", "uniform") != "uniform":
        fields.append(f".init = InitialValue::k{tensor['init'].capitalize()}")
    if tensor.get("built_real"):
        fields.append(".built_real = true")
    if tensor.get("rope"):
        fields.append(f".rope = {rope_text(tensor['rope'])}")
    if tensor.get("stored"):
        ways = ["std::vector<StoredKey>{" + ", ".join(
                f"{{{quoted(one['key'])}, {cpp(one['shape'])}}}" for one in way) + "}" for way in tensor["stored"]]
        fields.append(f".stored = {{{', '.join(ways)}}}")
    return textwrap.fill("{" + ", ".join(fields) + "}", 96, initial_indent=" " * 6, subsequent_indent=" " * 7,
                         break_long_words=False, break_on_hyphens=False).lstrip()  # fmt: skip


def job_of(case, strategy):
    """(the spec of a synthetic model or None, further lines that fill a Job)"""
    model, lines, spec = case["model"], [f"job.strategy = Strategy::{STRATEGIES[strategy]};"], None
    if model.get("tensors"):
        ties = ["std::vector<std::string>" + cpp(tie) for tie in model.get("ties", [])]
        spec = {"tensors": [tensor_text(one) for one in model["tensors"]],
                "ties": "{" + ", ".join(ties) + "}" if ties else ""}  # fmt: skip
    if model.get("adapter"):
        lines.append('job.adapter = directory + "/checkpoint/adapter";')
    if lora := model.get("lora"):
        lines.append(f"job.lora = LoraSpec{{{lora['rank']}, {{std::vector<std::string>{cpp(lora['targets'])}}}}};")
    if model.get("from_scratch"):
        lines.append("job.from_scratch = true;")
    if case["optimizer"] == "before-sharding":
        lines.append("job.optimizer_first = true;")
    lines.append(f"job.seed = {case['seed']}u;")
    lines.append(f"job.bucket_bytes = {case['bucket_bytes']}u;")
    if case["max_file_bytes"]:
        lines.append(f"job.max_file_bytes = {case['max_file_bytes']}u;")
    return spec, lines


# ---- the checkpoint ------------------------------------------------------------------------------


def tensors_in(path):
    """The tensors of a file of safetensors in the order of their bytes, as WriteSafetensors takes them."""
    with open(path, "rb") as file:
        data = file.read()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    tensors = []
    for key, one in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = one["data_offsets"]
        text = data[8 + size + begin : 8 + size + end].hex()
        lines = [f'"{text[at : at + HEX_PER_LINE]}"' for at in range(0, max(1, len(text)), HEX_PER_LINE)]
        tensors.append({"key": key, "dtype": one["dtype"], "shape": one["shape"], "lines": lines})
    return tensors


def files_of(run):
    """(name within the checkpoint, path) of every file that decides what is loaded."""
    model = run.case["model"]
    folders = {"": model.get("checkpoint") or os.path.join(run.evidence, "source")}
    if model.get("adapter"):
        folders["adapter/"] = model["adapter"]
    endings = () if model.get("from_scratch") else (".index.json", ".safetensors")
    return [(prefix + name, os.path.join(folder, name)) for prefix, folder in folders.items()
            for name in sorted(os.listdir(folder)) if name in CONFIG_FILES or name.endswith(endings)]  # fmt: skip


def source_files(run):
    """The checkpoint of a run: its folders, texts and files of tensors. Raises NotShown."""
    texts, tensor_files = [], []
    try:
        files = files_of(run)
        total = sum(os.path.getsize(path) for _, path in files)
        if total > EMBEDDED_BYTES_MAX:
            raise NotShown(f"the checkpoint has {total:,} bytes, more than a program can hold "
                           f"({EMBEDDED_BYTES_MAX:,})")  # fmt: skip
        for name, path in files:
            if name.endswith(".safetensors"):
                tensor_files.append({"name": name, "tensors": tensors_in(path)})
                continue
            with open(path, encoding="utf-8") as file:
                texts.append({"name": name, "text": file.read()})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotShown(f"the checkpoint cannot be read: {type(error).__name__}: {error}") from error
    folders = sorted({name.rpartition("/")[0] for name, _ in files} - {""})
    return {"folders": folders, "texts": texts, "tensor_files": tensor_files}
