"""The plain twin: models that no definition here knows are judged, and what is lacking is said."""

import subprocess
import sys

from command import REPOSITORY, CommandTest

MAKE_MIXTRAL = """
import sys, torch
from transformers import MixtralConfig, MixtralForCausalLM
torch.manual_seed(0)
config = MixtralConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, vocab_size=80,
                       num_attention_heads=4, num_key_value_heads=2, num_local_experts=3)
MixtralForCausalLM(config).bfloat16().save_pretrained(sys.argv[1])
"""

# Every rank loads all, with the framework's own conversion of packed experts, then shards.
LOADS = """
import torch
from torch.distributed.fsdp import fully_shard

CANNOT = {"plain": "it has one way of loading", "identity": "fully_shard replaces parameters",
          "host_bound": "it promises nothing", "keys": "it is not told them",
          "save": "it only loads"}


def run(case, observe):
    model = case.model_class().from_pretrained(case.checkpoint, dtype="auto")
    observe("built", model=model)
    fully_shard(model, mesh=case.device_mesh())
    change(case, model)
    observe("ready", model=model)


def change(case, model):
"""

EXPERTS = "model.layers.1.mlp.experts.down_proj"

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(31, 8)
        self.head = nn.Linear(8, 31, bias=False)
        self.head.weight = self.embed.weight
        self.norm = nn.LayerNorm(8)
        self.norm.weight.note = "of no use to anybody"
        self.register_buffer("scale", torch.linspace(0, 1, 8), persistent=False)
        self.register_buffer("count", torch.arange(3))

    def forward(self, ids):
        return self.head(self.norm(self.embed(ids)) * self.scale)


def make():
    return Net()
"""

SAVE_NET = """
import sys, torch
from net import make
from safetensors.torch import save_file
torch.manual_seed(1)
state = {key: value + torch.ones_like(value) for key, value in make().state_dict().items()}
del state["head.weight"]
save_file({"module." + key: value for key, value in state.items()}, sys.argv[1])
"""

OWN = """
import torch
import torch.distributed.checkpoint.state_dict as dcp
from torch.distributed.fsdp import fully_shard

CANNOT = {"plain": "it has one way of loading", "identity": "fully_shard replaces parameters",
          "host_bound": "it promises nothing", "keys": "it is not told them",
          "save": "it only loads"}


def run(case, observe):
    model = case.build("cpu")
    buffers = {name for name, _ in model.named_buffers()}
    observe("built", model=model,
            content=lambda name: "defined" if name in buffers else "undefined")
    fully_shard(model, mesh=case.device_mesh())
    options = dcp.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True, strict=False)
    state = {key.removeprefix("module."): each for key, each in case.state_dict().items()}
    dcp.set_model_state_dict(model, state if case.rank == 0 else {}, options=options)
    change(case, model)
    observe("ready", model=model)


def change(case, model):
"""


class Twins(CommandTest):
    def make(self, script, *words):
        path = self.write("make.py", script)
        subprocess.run([sys.executable, path, *words], check=True, cwd=self.dir,
                       capture_output=True)  # fmt: skip

    def verify(self, subject, change, checkpoint, *words, code):
        path = self.write("subject.py", subject + change)
        return self.judged(
            "verify", "--subject", path, "--checkpoint", checkpoint, "--world", "2", "--steps", "0",
            "--no-confirm", *words, code=code, timeout=120,
        )  # fmt: skip

    def verdicts(self, document):
        return {one["id"]: one["verdict"] for one in document["properties"]}


class UnknownArchitecture(Twins):
    labels = "selftest multi-rank framework"
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.make(MAKE_MIXTRAL, "mixtral")

    def test_a_model_that_is_not_written_out_here_passes(self):
        document = self.verify(LOADS, "    pass\n", self.dir / "mixtral", code=0)
        self.assertEqual(document["findings"], [])
        verdicts = self.verdicts(document)
        for judged in ("equals_source", "twin_equals_files", "derived_buffers", "keys_match"):
            self.assertEqual(verdicts[f"loading.{judged}"], "pass")

    def test_one_element_of_a_packed_expert_is_named(self):
        change = f"""
    if case.rank == 1:
        torch.no_grad()(lambda: model.get_parameter("{EXPERTS}").to_local().view(-1)[7].add_(1))()
"""
        document = self.verify(LOADS, change, self.dir / "mixtral", code=1)
        (found,) = [
            one for one in document["findings"] if one["property"] == "loading.equals_source"
        ]
        self.assertEqual((found["tensor"], found["ranks"]), (EXPERTS, [1]))
        # Of 3 experts the first 2 are rank 0's; each has 32 x 48 elements.
        self.assertEqual(found["index"], 2 * 32 * 48 + 7)

    def test_a_buffer_that_no_file_holds_is_held_against_the_twin(self):
        change = "    for buffer in model.buffers():\n        buffer.mul_(2)\n"
        document = self.verify(LOADS, change, self.dir / "mixtral", code=1)
        found = [
            one for one in document["findings"] if one["property"] == "loading.derived_buffers"
        ]
        self.assertTrue(found, document["findings"])
        self.assertIn("the plain twin", found[0]["message"])


class ModelOfOnesOwn(Twins):
    labels = "selftest multi-rank framework"
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.write("net.py", NET)
        self.write("weights/any.safetensors", "")
        self.make(SAVE_NET, "weights/any.safetensors")

    def verify_own(self, change, *, code, checkpoint="weights"):
        return self.verify(OWN, change, self.dir / checkpoint, "--model", self.dir / "net.py:make",
                           code=code)  # fmt: skip

    def test_a_model_of_ones_own_passes(self):
        for checkpoint in ("weights", "weights/any.safetensors"):
            with self.subTest(checkpoint):
                document = self.verify_own("    pass\n", checkpoint=checkpoint, code=0)
                self.assertEqual(document["findings"], [])
                verdicts = self.verdicts(document)
                for judged in ("equals_source", "ties_kept", "twin_equals_files"):
                    self.assertEqual(verdicts[f"loading.{judged}"], "pass")

    def test_what_is_lost_is_named(self):
        document = self.verify_own(
            "    if case.rank == 1:\n        model.count[2] = 9\n        model.scale.zero_()\n",
            code=1,
        )
        named = {(one["property"], one["tensor"], tuple(one["ranks"]))
                 for one in document["findings"]}  # fmt: skip
        self.assertIn(("loading.equals_source", "count", (1,)), named)
        self.assertIn(("loading.derived_buffers", "scale", (1,)), named)

    def test_what_is_lacking_is_said_with_what_works(self):
        path = self.write("subject.py", OWN + "    pass\n")
        words = ("verify", "--subject", path, "--world", "2", "--checkpoint")
        self.refused(*words, self.dir / "weights", names=["--model FILE.py:FUNCTION"])
        self.refused(*words, self.dir / "weights", "--model", self.dir / "net.py:nothing",
                     names=["has no function nothing"], timeout=100)  # fmt: skip
        self.refused(*words, self.dir / "weights", "--model", "nowhere.py:make",
                     names=["--model", "nowhere.py:make"])  # fmt: skip
        self.refused("verify", "--checkpoint", self.dir / "weights", "--model",
                     self.dir / "net.py:make", names=["--subject FILE"])  # fmt: skip


class ObservedJob(Twins):
    """A script of one's own with a model of its own: report builds the twin."""

    labels = "selftest multi-rank framework"
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.write("net.py", NET)
        self.write("weights/any.safetensors", "")
        self.make(SAVE_NET, "weights/any.safetensors")

    def report(self, change, *words, code, factory='factory="net.py:make"'):
        job = self.write("job.py", f"""
import shardproof, torch
from net import make
from safetensors.torch import load_file

model = make()
state = load_file("weights/any.safetensors")
model.load_state_dict({{k.removeprefix("module."): v for k, v in state.items()}}, strict=False)
{change}
shardproof.observe("ready", model=model, checkpoint="weights", {factory})
""")  # fmt: skip
        done = self.run_process(sys.executable, job, timeout=60,
                                PYTHONPATH=str(REPOSITORY / "verify" / "python"))  # fmt: skip
        self.assertEqual(done.code, 0, str(done))
        return self.judged("report", "shardproof-evidence", *words, "--python", sys.executable,
                           code=code, timeout=120)  # fmt: skip

    def test_a_sound_job_has_no_finding(self):
        # Inconclusive: what a script does not show, such as `built`, cannot be judged.
        document = self.report("", code=3)
        self.assertEqual(document["findings"], [])
        self.assertEqual(self.verdicts(document)["loading.equals_source"], "pass")

    def test_a_mistake_is_named_and_the_function_may_be_said_later(self):
        document = self.report("model.count[0] += 1", "--model", self.dir / "net.py:make", code=1,
                               factory="")  # fmt: skip
        self.assertEqual([one["tensor"] for one in document["findings"]
                          if one["property"] == "loading.equals_source"], ["count"])  # fmt: skip

    def test_without_it_that_is_said(self):
        document = self.report("", code=3, factory="")
        reasons = " ".join(one.get("reason", "") for one in document["properties"])
        self.assertIn("expected --model FILE.py:FUNCTION", reasons)
        done = self.shardproof("report", "shardproof-evidence", "--python", sys.executable)
        self.assertIn("inconclusive, nothing was compared with the checkpoint", done.out)
