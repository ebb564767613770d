"""Draws sound ways to train, and verifies each: whatever is found is a false finding, or the
subject's own mistake. The last step of ci/nightly."""

import argparse
import importlib
import json
import random
import shlex
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from subject_runs import PACKAGE, REPOSITORY, ran, warm

SUBJECTS = REPOSITORY / "verify" / "subjects"
# Meshes, and how often: two ranks show most of what more do.
MESHES = {"2": 10, "3": 2, "4": 1, "2x2": 2, "dp_shard=1,tp=2": 1, "dp_shard=2,tp=2": 1}
# Of small_models.py.
MODELS = ("plain", "tied", "dropout", "batch_norm", "sometimes", "caches", "follows")
CHECKPOINT = "llama-tied-small"
USUAL = 0.6  # how often an option has its default
STEPS = "3"  # the second is the one that some ways leave out, or freeze for
TRIES = 100


def axes_of(mesh):
    """{axis: ranks}, as a case has them."""
    if "=" in mesh:
        return {axis: int(size) for axis, size in (each.split("=") for each in mesh.split(","))}
    sizes = [int(size) for size in mesh.split("x")]
    return dict(zip(("dp_replicate", "dp_shard")[-len(sizes) :], sizes, strict=True))


def draw(ways, chance):
    """(mesh, model, options) of one that goes together. model: "" of a checkpoint's own."""
    for _ in range(TRIES):
        mesh = chance.choices(list(MESHES), MESHES.values())[0]
        model = chance.choice(("", *MODELS))
        options = {
            name: values[0] if chance.random() < USUAL else chance.choice(values)
            for name, values in ways.OPTIONS.items()
        }
        if not why_not(ways, mesh, model, options):
            return mesh, model, options
    raise RuntimeError(f"{TRIES} draws, and none goes together")


def why_not(ways, mesh, model, options):
    if "tp" in mesh and not model:
        return "the checkpoint's matrices have odd sizes"
    if options["dropout"] == "yes" and model:
        return "small_models.py has a model of its own with dropout"
    is_fsdp1 = options["wrapper"].startswith("fsdp1")
    if model == "follows" and is_fsdp1:
        return "FSDP1's parameters are views, which torch does not let the forward pass change"
    if model == "sometimes" and is_fsdp1 and options["batches"] == "no_sync":
        return "FSDP1 wants a gradient of every parameter in each pass without synchronisation"
    if model == "batch_norm" and (options["wrapper"], options["precision"]) == ("fsdp2", "bf16"):
        return "torch's batch norm takes no weights in BF16 beside buffers in F32"
    if model == "batch_norm" and options["wrapper"] == "accelerate":
        return "Accelerate takes every entry of a state dict for a DTensor, which buffers are not"
    if model == "tied" and options["wrapper"] == "accelerate":
        return "Accelerate loses the ties of a model that has no tie_weights, which is a finding"
    return ways.why_not(options, axes_of(mesh))


def words_of(mesh, model, options, checkpoints):
    """Those of the command."""
    words = ["--mesh", mesh]
    if model:
        words += ["--model", f"{SUBJECTS / 'small_models.py'}:{model}"]
    words += ["--checkpoint", str(checkpoints[model]), "--steps", STEPS]
    for name, value in options.items():
        words += ["--option", f"{name}={value}"]
    return words


def checkpoints_of(build, folder):
    """Of each model: its path. Values are random, and the same each time."""
    import small_models
    import torch
    from safetensors.torch import save_file

    found = {"": build / "checkpoints" / CHECKPOINT}
    for name in MODELS:
        torch.manual_seed(0)
        state = dict(getattr(small_models, name)().state_dict())
        if name == "tied":
            del state["head.weight"]
        found[name] = folder / f"{name}.safetensors"
        save_file(state, found[name])
    return found


def in_words(mesh, model, options, ways):
    """What is unusual."""
    unusual = [f"{k}={v}" for k, v in options.items() if v != ways.OPTIONS[k][0]]
    return " ".join([mesh, model or CHECKPOINT, options["wrapper"], *unusual])


def parse():
    parser = argparse.ArgumentParser(prog="ci/sound_ways.py", allow_abbrev=False)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, help="begin no run after these")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def measured(asked, python, checkpoints):
    ways = importlib.import_module("ways_to_train")
    drawn, told, begun = Counter(), [], time.monotonic()
    count, build = 0, asked.build.resolve()
    with tempfile.TemporaryDirectory(prefix="ways-") as scratch:
        result = str(Path(scratch) / "result.json")
        while count < asked.count:
            if asked.seconds and time.monotonic() - begun > asked.seconds:
                break
            mesh, model, options = draw(ways, random.Random(f"{asked.seed} {count}"))
            words = ["--subject", str(SUBJECTS / "ways_to_train.py")]
            words += words_of(mesh, model, options, checkpoints)
            verdict, by = ran(str(build / "shardproof"), ["--python", python, *words], result)
            drawn.update([f"mesh={mesh}", f"model={model or CHECKPOINT}"])
            drawn.update(f"{name}={value}" for name, value in options.items())
            if verdict != "pass":
                way = in_words(mesh, model, options, ways)
                print(f"{count}: {verdict}  {way}  ({by})", flush=True)
                print("   shardproof verify", shlex.join(words), flush=True)
                told.append({"number": count, "verdict": verdict, "by": by, "words": words})
            count += 1
    return count, told, drawn, time.monotonic() - begun


def main():
    asked = parse()
    sys.path[:0] = [str(SUBJECTS), str(PACKAGE)]
    with tempfile.TemporaryDirectory(prefix="models-") as folder, warm(sys.executable) as python:
        checkpoints = checkpoints_of(asked.build.resolve(), Path(folder))
        count, told, drawn, seconds = measured(asked, python, checkpoints)
    for name, times in sorted(drawn.items()):
        print(f"{times:6}  {name}")
    verdicts = Counter(one["verdict"] for one in told)
    others = "".join(f", {number} {verdict}" for verdict, number in verdicts.items())
    passed, minutes = count - len(told), seconds / 60
    print(f"{passed} of {count} pass{others}; {minutes:.1f} min, seed {asked.seed}")
    if asked.json:
        document = {"schema": 1, "seed": asked.seed, "runs": count, "drawn": drawn,
                    "not_passed": told}  # fmt: skip
        asked.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
