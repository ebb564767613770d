"""Runs the subjects of real frameworks on releases that are sound and on ones that are not; see
ci/history --help. A row is what is run and what is expected of it, nothing of how it is judged."""

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "verify" / "subjects" / "README.md"
BEGIN, END = "<!-- ci/history writes from here -->\n", "<!-- to here -->\n"
LACKED = (
    "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight",
    "model.norm.weight",
)  # fmt: skip
MAKE = "fixtures/checkpoints/make.py"
# Large enough for a tensor to lie in pages of its own.
DENSE = (
    "--arch qwen3 --dtype bf16 --layers 2 --hidden 256 --heads 4 --kv-heads 2 --head-dim 32 "
    "--intermediate 512 --vocab 1024 --seed 5"
)
DROP = """
import sys
from safetensors.torch import load_file, save_file
path, *keys = sys.argv[1:]
save_file({k: v for k, v in load_file(path).items() if k not in keys}, path, {"format": "pt"})
"""
ROUTER = """
import sys, torch
from safetensors.torch import save_file
sys.path.insert(0, "fixtures/examples")
from router import make
torch.manual_seed(3)
save_file({k: torch.randn_like(v) for k, v in make().state_dict().items()}, sys.argv[1])
"""
TORCHTITAN = """
import sys, torch
from safetensors.torch import save_file
sys.path[:0] = ["verify/subjects", "verify/python"]
from torchtitan_llama import make
torch.manual_seed(3)
save_file({k: torch.randn_like(v) for k, v in make().state_dict().items()}, sys.argv[1])
"""
FOUR_BITS = """
import sys, torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
    bnb_4bit_quant_storage=torch.bfloat16, bnb_4bit_compute_dtype=torch.bfloat16)
words = {"quantization_config": how, "dtype": torch.bfloat16}
AutoModelForCausalLM.from_pretrained(sys.argv[2], **words).save_pretrained(sys.argv[1])
"""
ALLOWED = tuple(word for key in LACKED for word in ("--allow-missing", key))
OWN = ("--model", "fixtures/examples/router.py:make")


@dataclasses.dataclass(frozen=True)
class Row:
    """environment: NAME or NAME==VERSION. checkpoint: of make_checkpoint. tells: the property that
    fails; empty if it passes. known: where the behaviour is reported."""

    framework: str
    environment: str
    subject: str
    checkpoint: str
    tells: str = ""
    known: str = ""
    words: tuple = ()


ACCELERATE, MEGATRON = "transformers_accelerate", "transformers_megatron_fsdp"
COMMITS = "huggingface/transformers#45649"
LOST = "fixtures/issues: accelerate_optimizer_loses_parameters"
EVALUATED = "fixtures/issues: bitsandbytes_evaluation_breaks_sharded_weights"
DECAYS = "fixtures/issues: megatron_fsdp_optimizer_steps_when_made"
TITAN = ("--model", "verify/subjects/torchtitan_llama.py:make")
LOADS_ALONE = ("--resume-world", "2", "--steps", "0")
FROM_META = (*OWN, "--option", "init=meta")
ROWS = (
    Row("Transformers 5.24.0, Accelerate 1.15.0", "transformers", ACCELERATE, "dense"),
    Row("Transformers 5.23.0, Accelerate 1.15.0", "transformers==5.23.0", ACCELERATE, "dense"),
    Row("Transformers 5.22.2, Accelerate 1.15.0", "transformers==5.22.2", ACCELERATE, "dense",
        "memory.no_page_commit", COMMITS),
    Row("Transformers 5.5.4, Accelerate 1.15.0", "transformers==5.5.4", ACCELERATE, "dense",
        "memory.no_page_commit", "huggingface/transformers#45050"),
    Row("Transformers 5.0.0, Accelerate 1.15.0", "transformers==5.0.0", ACCELERATE, "dense",
        "memory.no_page_commit", "huggingface/transformers#45050"),
    Row("Transformers 5.24.0, Accelerate 1.15.0", "transformers", ACCELERATE, "lacks keys",
        "training.optimizer_live", LOST, ALLOWED),
    Row("Transformers 5.24.0, Accelerate 1.15.0", "transformers", ACCELERATE, "buffer",
        "fault.every_rank_finishes", "fixtures/issues: accelerate_persistent_buffer_raises"),
    Row("PEFT 0.21.2", "peft", "transformers_peft", "dense"),
    Row("PEFT 0.21.2", "peft", "transformers_peft", "dense", "loading.all_defined",
        "documented: the adapter stays on meta until it is loaded",
        ("--option", "efficient=no", "--option", "low_cpu_mem_usage=yes")),
    Row("bitsandbytes 0.50.2, PEFT 0.21.2", "bitsandbytes", "transformers_peft", "4 bits"),
    Row("bitsandbytes 0.50.2, PEFT 0.21.2", "bitsandbytes", "transformers_peft", "4 bits",
        "checkpoint.resume_exact", EVALUATED, ("--option", "evaluate=yes")),
    Row("Megatron-FSDP 0.6.1", "megatron-fsdp", MEGATRON, "dense"),
    Row("Megatron-FSDP 0.6.1", "megatron-fsdp", MEGATRON, "router", "loading.buffers_preserved",
        "NVIDIA/Megatron-LM#4155", FROM_META),
    Row("Megatron-FSDP 0.5.1", "megatron-fsdp==0.5.1", MEGATRON, "router",
        "loading.buffers_preserved", "NVIDIA/Megatron-LM#4155", FROM_META),
    Row("Megatron-FSDP 0.6.1", "megatron-fsdp", MEGATRON, "tied, F32", "loading.equals_source",
        DECAYS),
    Row("Twinkle 0.5.1", "twinkle-kit", "transformers_twinkle", "dense"),
    Row("Twinkle 0.1.3", "twinkle-kit==0.1.3", "transformers_twinkle", "dense",
        "loading.all_defined", "modelscope/twinkle#117"),
    Row("AREaL 1.0.4", "areal", "transformers_areal", "dense"),
    Row("AREaL 1.0.4", "areal", "transformers_areal", "experts", "loading.equals_source",
        "fixtures/issues: areal_experts_stay_random"),
    Row("AREaL 1.0.4", "areal", "transformers_areal", "dense", "loading.equals_source",
        "fixtures/issues: areal_lora_base_stays_random", ("--option", "lora=yes")),
    Row("AREaL 1.0.4", "areal", "transformers_areal", "dense",
        words=("--option", "lora=yes", "--option", "efficient=no")),
    Row("AREaL 1.0.4", "areal", "transformers_areal", "vision",
        words=("--option", "lora=yes")),
    Row("AREaL 1.0.4", "areal", "transformers_areal", "vision"),
    Row("verl 0.9.1", "verl", "transformers_verl", "dense"),
    Row("DeepSpeed 0.19.8", "deepspeed", "transformers_deepspeed", "dense",
        words=("--resume-world", "2")),
    Row("DeepSpeed 0.19.8, Transformers 5.0.0", "transformers==5.0.0", "transformers_deepspeed",
        "experts, old config", "loading.equals_source",
        "huggingface/transformers#43964, deepspeedai/DeepSpeed#7848", LOADS_ALONE),
    Row("DeepSpeed 0.19.8", "deepspeed", "transformers_deepspeed", "experts, old config",
        words=LOADS_ALONE),
    Row("TRL 1.16.0, Accelerate 1.15.0", "trl", "transformers_trl", "dense"),
    Row("torchtitan 0.3.0", "torchtitan", "torchtitan_llama", "torchtitan", words=TITAN),
    Row("torchtitan 0.3.0", "torchtitan", "torchtitan_llama", "torchtitan",
        words=(*TITAN, "--mesh", "tp=2")),
    Row("Lightning 2.6.6", "lightning", "transformers_lightning", "dense",
        "loading.derived_buffers", "fixtures/issues: lightning_leaves_buffers_empty"),
)  # fmt: skip


def make_checkpoint(name, folder, python):
    """A directory that has it, made once. python: of the row that asks for it."""
    path = folder / name.replace(" ", "_").replace(",", "")
    if path.exists():
        return path
    if name in ("router", "torchtitan"):
        part = path.with_suffix(".part")  # whole, or not there
        part.mkdir(parents=True, exist_ok=True)
        run(python, "-c", ROUTER if name == "router" else TORCHTITAN, part / "model.safetensors")
        return part.rename(path)
    if name == "4 bits":
        run(python, "-c", FOUR_BITS, path, make_checkpoint("dense", folder, python))
        return path
    presets = {
        "tied, F32": "--preset llama-tied-small",
        "experts": "--preset qwen3-moe-small",
        "experts, old config": "--preset qwen3-moe-small",
        "buffer": "--preset lfm2-moe-small",
        "vision": "--preset qwen3-vl-small --dtype bf16",  # in F16, AdamW's eps is 0
    }
    run(sys.executable, MAKE, *presets.get(name, DENSE).split(), path)
    if name == "lacks keys":
        run(sys.executable, "-c", DROP, path / "model.safetensors", *LACKED)
    if name == "experts, old config":  # early releases of Transformers 5 know its old name alone
        config = json.loads((path / "config.json").read_text())
        config["num_experts"] = config["num_local_experts"]
        (path / "config.json").write_text(json.dumps(config))
    return path


def run(*words):
    subprocess.run([str(word) for word in words], check=True, cwd=REPOSITORY)


def python_of(environment, torch):
    done = subprocess.run(
        ["ci/environment", "--torch", torch, environment],
        cwd=REPOSITORY, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return done.stdout.splitlines()[-1] if done.returncode == 0 else None


def result_of(row, python, build, checkpoint):
    """What the command finds, as it writes it for machines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        words = [
            REPOSITORY / build / "shardproof", "verify", "--subject",
            f"verify/subjects/{row.subject}.py", "--checkpoint", checkpoint,
            *(() if "--mesh" in row.words else ("--world", "2")),
            "--python", python, "--no-confirm", "--json", path,
            "--deadline", "300", *row.words,  # some import for long
        ]  # fmt: skip
        subprocess.run([str(w) for w in words], cwd=REPOSITORY, stdout=subprocess.DEVNULL)
        return json.loads(path.read_text())


def told(row, document):
    """(whether it came out as expected, the line of the table)."""
    by_property = {}
    for finding in document["findings"]:
        by_property.setdefault(finding["property"], finding["message"])
    if row.tells:
        right, says = row.tells in by_property, by_property.get(row.tells, "nothing")
    else:
        right, says = document["verdict"] == "pass", next(iter(by_property.values()), "")
    says = says.replace("|", "\\|")
    options = "" if row.words in ((), ALLOWED) else " ".join(row.words).replace("|", "\\|")
    cells = (row.framework, f"{row.subject}.py", row.checkpoint, options, document["verdict"],
             row.tells, says[:160], row.known)  # fmt: skip
    return right, "| " + " | ".join(cells) + " |"


def write(lines):
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    lines = ["| framework | subject | checkpoint | with | verdict | property | it says | known |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    wrong = []
    for row in [row for row in ROWS if given.only in row.framework]:
        python = python_of(row.environment, given.torch)
        if python is None:
            wrong.append(f"{row.framework}: its environment cannot be made")
            continue
        checkpoint = make_checkpoint(row.checkpoint, REPOSITORY / given.build / "history", python)
        right, line = told(row, result_of(row, python, given.build, checkpoint))
        print(line, flush=True)
        lines.append(line)
        if not right:
            wrong.append(f"{row.framework}, {row.checkpoint}: expected {row.tells or 'pass'}")
    print("\n".join(wrong) or f"{len(lines) - 2} rows, each as expected")
    if given.write:
        write(lines)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
