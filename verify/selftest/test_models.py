"""The reference builds what the real Transformers builds of the same config.json, and passes on
it."""

import json
import struct

from command import REPOSITORY, CommandTest, checkpoint

DESCRIBE = REPOSITORY / "fixtures" / "checkpoints" / "describe.py"
CHECK = REPOSITORY / "fixtures" / "checkpoints" / "check_loads.py"
KINDS = ("qwen3-small", "llama-tied-small", "qwen3-moe-small", "lfm2-moe-small", "qwen2.5-vl-small",
         "qwen3-vl-small")  # fmt: skip
ROPES = tuple(f"llama-{kind}-small" for kind in
              ("linear", "dynamic", "yarn", "longrope", "llama3", "proportional"))  # fmt: skip
QUANTISED = ("qwen3-fp8-small", "qwen3-moe-fp8-small", "qwen2.5-vl-fp8-small",
             "qwen3-vl-fp8-small", "qwen3-int8-small")  # fmt: skip
STRATEGIES = ("rank0-broadcast", "rank0-scatter", "each-reads-own", "plain")
DTYPES = {"float32": "F32", "bfloat16": "BF16", "float16": "F16", "float8_e4m3fn": "F8_E4M3",
          "int8": "I8"}  # fmt: skip


def tensors_at_ready(directory, rank):
    """{FQN: (descriptor, state)} of what a rank of the phase `values` holds at `ready`."""
    descriptors, latest, stage = {}, {}, None
    with open(directory / "evidence" / "values" / f"rank_{rank}.facts.jsonl") as lines:
        for line in lines:
            record = json.loads(line)
            if record["record"] == "tensor":
                descriptors[record["id"]] = record
            elif record["record"] == "stage":
                stage = record["name"]
            elif record["record"] == "state":
                latest[record["name"]] = (descriptors[record["tensor"]], record)
            elif record["record"] == "stage_end" and stage == "ready":
                return dict(latest)
    raise AssertionError(f"rank {rank} has no stage `ready`")


def values_of(state):
    """The floats of an F32 tensor that is on record whole."""
    (only,) = state["bytes"]
    data = bytes.fromhex(only["hex"])
    return list(struct.unpack(f"<{len(data) // 4}f", data))


class Models(CommandTest):
    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 400

    def described(self, names):
        """What Transformers makes of each, in one process: importing it takes seconds."""
        done = self.run_script(DESCRIBE, *map(checkpoint, names), timeout=200,
                                TMPDIR=str(self.root))  # fmt: skip
        self.assert_exit(done, 0)
        return {name: done.json()[checkpoint(name)] for name in names}

    def verified(self, name, *words):
        report = self.dir / "report"
        done = self.shardproof(
            "verify", "--checkpoint", checkpoint(name), "--report", report, *words
        )
        self.assert_exit(done, 0)
        return report

    def same_model(self, name, expected):
        ready = tensors_at_ready(self.verified(name, "--world", 2), 0)
        parameters = {n: d for n, (d, _) in ready.items() if d["kind"] == "parameter"}
        buffers = {n: d for n, (d, _) in ready.items() if d["kind"] == "buffer"}
        self.assertEqual(sorted(parameters), sorted(expected["parameters"]))
        self.assertEqual(sorted(buffers), sorted(expected["buffers"]))
        for fqn, ours in {**parameters, **buffers}.items():
            theirs = expected["parameters"].get(fqn) or expected["buffers"][fqn]
            self.assertEqual((ours["shape"], ours["dtype"]),
                             (theirs["shape"], DTYPES[theirs["dtype"]]), fqn)  # fmt: skip
        for fqn, theirs in expected["buffers"].items():
            self.assertEqual(buffers[fqn].get("persistent", True), theirs["persistent"], fqn)
            if theirs.get("values") is None:
                continue
            # The same library computes both: not one bit may differ.
            self.assertEqual(values_of(ready[fqn][1]), theirs["values"], fqn)
        groups = {}
        for fqn, ours in ready.items():
            groups.setdefault(ours[0]["alias_group"], []).append(fqn)
        ties = sorted(sorted(group) for group in groups.values() if len(group) > 1)
        self.assertEqual(ties, sorted(map(sorted, expected["ties"])))

    def compare(self, names):
        for name, expected in self.described(names).items():
            with self.subTest(name):
                self.same_model(name, expected)

    def test_every_architecture_has_transformers_tensors_buffers_and_ties(self):
        self.compare(KINDS)

    def test_every_rope_has_transformers_frequencies(self):
        self.compare(ROPES)

    def on_every_mesh(self, names):
        meshes = ("dp_shard=1", "dp_shard=2", "dp_shard=3", "dp_shard=4", "2x2", "2x2x2")
        for turn, name in enumerate(names):
            for number, mesh in enumerate(meshes):
                strategy = STRATEGIES[(turn + number) % len(STRATEGIES)]
                with self.subTest(f"{name} on {mesh} by {strategy}"):
                    done = self.shardproof("verify", "--checkpoint", checkpoint(name), "--mesh",
                                           mesh, "--strategy", strategy)  # fmt: skip
                    self.assert_exit(done, 0)

    def test_every_architecture_on_every_mesh_by_every_strategy(self):
        self.on_every_mesh(KINDS[2:])

    def test_experts_on_an_expert_mesh(self):
        for name in ("qwen3-moe-small", "lfm2-moe-small", "qwen3-moe-fp8-small"):
            for mesh in ("dp_shard=2,ep=2", "dp_replicate=2,dp_shard=2,ep=2"):
                with self.subTest(f"{name} on {mesh}"):
                    self.verified(name, "--mesh", mesh, "--strategy", "rank0-scatter")

    def test_transformers_loads_what_was_saved(self):
        self.load_saved(KINDS[2:])

    def test_transformers_loads_quantised_models_that_were_saved(self):
        self.load_saved(QUANTISED)

    def load_saved(self, names):
        for name in names:
            with self.subTest(name):
                saved = self.dir / f"saved-{name}"
                done = self.shardproof("verify", "--checkpoint", checkpoint(name), "--mesh", "2x2",
                                       "--save-to", saved)  # fmt: skip
                self.assert_exit(done, 0)
                done = self.run_script(CHECK, checkpoint(name), saved, timeout=120,
                                        TMPDIR=str(self.root))  # fmt: skip
                self.assert_exit(done, 0)
                self.assert_exit(self.shardproof("compare", checkpoint(name), saved), 0)


class QuantisedModels(Models):
    labels = "selftest multi-rank framework nightly"
    fixtures = "checkpoints"
    timeout_s = 400

    def test_quantised_models_have_transformers_tensors(self):
        self.compare(QUANTISED)

    def test_quantised_models_on_every_mesh_by_every_strategy(self):
        self.on_every_mesh(QUANTISED)
