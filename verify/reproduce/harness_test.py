"""Each check of harness/ passes what is right and names what is wrong; a script ends as it says."""

import os
import subprocess
import sys
import tempfile
import types
import unittest

import script
import torch
import torch.distributed as dist
from safetensors.torch import save_file

FOLDER = tempfile.TemporaryDirectory()
script.write_harness(FOLDER.name)
sys.path.insert(0, FOLDER.name)

import harness  # noqa: E402
from harness.ends import End  # noqa: E402


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0).view(2, 2))
        self.bias = torch.nn.Parameter(torch.ones(2))
        self.register_buffer("steps", torch.tensor([3]))


class OneRank(unittest.TestCase):
    """A check's look at a model, in this process, as the only rank."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.model, self.fails = folder.name, Small(), []
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        save_file(self.model.state_dict(), f"{self.folder}/model.safetensors")
        case = types.SimpleNamespace(
            checkpoint=self.folder,
            save_to=self.folder,
            rank=0,
            world_size=1,
            build=lambda device: Small().to(device),
        )
        self.rank = types.SimpleNamespace(
            case=case,
            directory=self.folder,
            model=self.model,
            optimizer=self.optimizer,
            content=None,
            keys={"missing": [], "unexpected": []},
            fail=lambda tensor, what: self.fails.append((tensor, what)),
        )

    def look(self, check, model=None):
        """What fails, as text."""
        self.fails.clear()
        check.look(self.rank, self.model if model is None else model)
        return "; ".join(f"{tensor} {what}".strip() for tensor, what in self.fails)

    def test_an_element_that_is_not_the_checkpoints(self):
        check = harness.SameAsCheckpoint(tensors=["weight", "gone"], keys={"gone": "weight"})
        self.assertEqual(self.look(check), "gone is not in the model")
        self.model.weight.data[1, 0] = 7
        said = "weight element 2 is 7.0 (0x40e00000), expected 2.0 (0x40000000); 1 of the 4"
        self.assertTrue(self.look(check).startswith(said), self.look(check))
        self.model.weight.data = self.model.weight.data.double()
        self.assertIn("is torch.float64 [2, 2], expected torch.float32 [2, 2]", self.look(check))
        self.model.to("meta")
        self.assertIn("weight is on the meta device", self.look(check))

    def test_a_negative_zero_and_a_nan_are_told_by_their_bits(self):
        check = harness.SameAsReference(["weight"], reference=("values", "built"))
        self.model.weight.data[0, 0] = float("nan")
        check.remember(self.rank, self.model)
        self.assertEqual(self.look(check), "")
        self.model.weight.data[0, 1] = -0.0
        check.remember(self.rank, self.model)
        self.model.weight.data[0, 1] = 0.0
        self.assertIn("element 1 is 0.0 (0x00000000), expected -0.0 (0x80000000)", self.look(check))

    def test_a_formula_is_met_within_its_bound(self):
        formula = {"bias": [1.0000001, 1.0]}
        self.assertEqual(self.look(harness.WithinFormula(["bias"], formula=formula, ulp=1)), "")
        self.assertIn("element 0", self.look(harness.WithinFormula(["bias"], formula=formula)))

    def test_what_is_not_finite_and_was(self):
        check = harness.Finite(["weight"])
        self.assertEqual(self.look(check), "")
        self.model.weight.data[1, 1] = float("inf")
        self.assertEqual(self.look(check), "weight 1 elements are Inf, the first is 3")
        save_file(self.model.state_dict(), f"{self.folder}/model.safetensors")
        self.assertEqual(self.look(check), "")

    def test_what_has_no_memory_or_no_value(self):
        check = harness.Defined(["weight", "gone"])
        self.assertEqual(self.look(check), "gone is not in the model")
        self.rank.content = lambda name: "none" if name == "weight" else "values"
        self.assertIn('weight run() calls its content "none"', self.look(check))
        self.assertEqual(self.look(harness.NotMeta(["weight"])), "")
        self.model.to("meta")
        self.assertIn("weight is still on the meta device", self.look(harness.NotMeta(["weight"])))
        self.assertIn("weight is still on the meta device", self.look(check))

    def test_a_field_that_changes(self):
        declared = harness.FieldKept(["bias"], field="requires_grad")
        built = harness.FieldKept(["bias"], ("values", "built"), field="object")
        built.remember(self.rank, self.model)
        self.assertEqual(self.look(declared) + self.look(built), "")
        self.model.bias = torch.nn.Parameter(torch.ones(2), requires_grad=False)
        self.assertEqual(self.look(declared), "bias requires_grad is False, expected True")
        self.assertIn("bias object is the object", self.look(built))

    def test_memory_that_is_shared_or_not(self):
        shared = {"bias": "weight"}
        self.assertIn("does not share", self.look(harness.MemoryShared(shared=shared)))
        self.assertEqual(self.look(harness.MemoryShared(shared=shared, must=False)), "")
        self.model.bias = self.model.weight
        self.assertEqual(self.look(harness.MemoryShared(shared=shared)), "")
        self.assertIn("shares", self.look(harness.MemoryShared(shared=shared, must=False)))

    def test_names_and_reports_of_keys(self):
        self.assertEqual(self.look(harness.Names()), "")
        self.model.extra = torch.nn.Parameter(torch.ones(1))
        del self.model.bias
        said = "the model lacks 1 tensors: bias; the model has in addition 1 tensors: extra"
        self.assertEqual(self.look(harness.Names()), said)
        check = harness.KeyReport(["weight"], which="missing")
        self.assertEqual(self.look(check), "")
        self.rank.keys["missing"] = ["weight"]
        self.assertIn("weight is not missing", self.look(check))
        check = harness.KeyReport(["gone"], which="unexpected")
        self.assertIn("gone is unexpected", self.look(check))

    def test_what_is_saved(self):
        good = [
            harness.SavedAll(["weight"]),
            harness.NotSaved(["gone"]),
            harness.SavedOnce(shared={"weight": "gone"}),
            harness.SavedUnchanged(["weight"]),
        ]
        bad = [
            harness.SavedAll(["gone"]),
            harness.NotSaved(["weight"]),
            harness.SavedOnce(shared={"weight": "bias"}),
        ]
        self.assertEqual([self.look(check) for check in good], [""] * 4)
        self.assertEqual(["gone", "weight", "weight"], [self.look(one).split()[0] for one in bad])
        saved = f"{self.folder}/saved"
        os.makedirs(saved)
        self.model.weight.data[0, 0] = 9
        save_file(self.model.state_dict(), f"{saved}/model.safetensors")
        self.rank.case.save_to = saved
        self.assertIn("weight element 0 is 9.0", self.look(good[-1]))

    def test_an_optimizer_and_what_it_keeps(self):
        live = harness.OptimizerLive(["weight"])
        options = harness.OptionsKept(["weight"], ("train", "saved@1"))
        rng = harness.RngKept(reference=("train", "saved@1"))
        acts = harness.StepsAct(reference=("train", "ready"))
        one_acts = harness.StepsAct(["weight"], ("train", "ready"))
        for check in (options, rng, acts, one_acts):
            check.remember(self.rank, self.model)
        self.assertEqual(self.look(live) + self.look(options) + self.look(rng), "")
        self.assertIn("the step changed no parameter", self.look(acts))
        self.assertIn("weight it is what it was at `ready`", self.look(one_acts))
        torch.rand(1)
        self.optimizer.param_groups[0]["lr"] = 0.2
        self.assertIn("another state", self.look(rng))
        self.assertEqual(self.look(options), "weight its lr is 0.2, it was 0.1 when saved")
        self.model.weight = torch.nn.Parameter(torch.zeros(2, 2))
        self.assertEqual(self.look(acts) + self.look(one_acts), "")
        self.assertIn("0 times", self.look(live))
        self.assertIn("1 tensors that are not", self.look(harness.OptimizerLive()))

    def test_pages_that_are_backed(self):
        check = harness.NoPages(["weight"])
        self.model.weight = torch.nn.Parameter(torch.empty(1 << 20))
        self.assertEqual(self.look(check), "")
        with torch.no_grad():
            self.model.weight.fill_(1)
        self.assertIn("are committed", self.look(check))

    def test_memory_beyond_the_limit(self):
        for limit, fails in ((64 << 20, 0), (1 << 20, 1)):
            check = harness.PeakMemory(limits={0: limit})
            check.begin(self.rank)
            kept = torch.ones(4 << 20)
            self.rank.memory.peak = max(self.rank.memory.peak, self.rank.memory.idle + kept.nbytes)
            self.look(check)
            self.assertEqual(len(self.fails), fails)

    def test_shards_and_fields_over_ranks(self):
        store = dist.FileStore(f"{self.folder}/store", 1)
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        self.addCleanup(dist.destroy_process_group)
        self.assertEqual(self.look(harness.Layout(["weight"])), "")
        self.assertEqual(self.look(harness.FieldAlike(["weight"], field="dtype")), "")


class Ends(unittest.TestCase):
    job = types.SimpleNamespace(at=("values", "ready"))

    def test_every_way_to_end_is_told(self):
        for code, said, kind, words in (
            (0, [{"stage": "ready"}, {"ended": True}], "", ""),
            (0, [{"stage": "ready"}], "exit", "exit code 0 after `ready`, before run() was over"),
            (3, [], "exit", "exit code 3 before its first stage"),
            (None, [{"stage": "built"}], "hang", "still running after `built`"),
            (-9, [], "signal", "SIGKILL"),
            (
                1,
                [{"raised": "ValueError: no", "type": "ValueError"}],
                "raised",
                "raised before its first stage: ValueError",
            ),
        ):
            end = End("values", 0, code, said)
            self.assertEqual(end.kind, kind)
            self.assertIn(words, end.what)

    def test_who_may_end_how(self):
        dies = End("values", 1, -9, [{"struck": "kill"}])
        raises = End("values", 0, 1, [{"raised": "RuntimeError: lost", "type": "RuntimeError"}])
        hangs = End("values", 0, None, [])
        judge = harness.EndsWell().judge
        self.assertEqual([len(judge(self.job, end)[0]) for end in (dies, raises, hangs)], [1, 1, 1])
        judge = harness.SurvivorsEnd().judge
        self.assertEqual([len(judge(self.job, end)[0]) for end in (dies, raises, hangs)], [0, 0, 1])
        judge = harness.SurvivorsEnd(may_fail=False).judge
        self.assertEqual([len(judge(self.job, end)[0]) for end in (dies, raises, hangs)], [0, 1, 1])

    def test_a_check_that_was_never_asked_is_trouble(self):
        fails, trouble = harness.Names().judge(self.job, End("values", 0, 0, [{"ended": True}]))
        self.assertEqual(
            (fails, trouble), ([], "run() was over without `ready`: nothing was checked")
        )


SUBJECT = """
import torch
from torch.distributed.tensor import Shard, distribute_tensor

def run(case, observe):
    model = case.build("cpu")
    weight = case.state_dict()["weight"].clone()
    CHANGE
    model.weight = torch.nn.Parameter(distribute_tensor(weight, case.device_mesh(), [Shard(0)]))
    observe("ready", model)
"""
SCRIPT = """
import sys
from harness import Job, RandomCheckpoint, SameAsCheckpoint, main

JOB = Job(
    subject="subject/one.py",
    phases={"values": {"world_size": 2, "mesh": {"dp_shard": 2}, "strategy": "rank0-broadcast",
                       "seed": 1, "saves": False, "resumes": False}},
    at=("values", "ready"),
    model="model.json",
    checkpoint=RandomCheckpoint(),
    deadline_s=40,
)
if __name__ == "__main__":
    sys.exit(main(JOB, SameAsCheckpoint(["weight"]), __doc__))
"""


class Script(unittest.TestCase):
    def ended(self, change):
        """(exit code, output) of a script in a directory of its own."""
        with tempfile.TemporaryDirectory() as folder:
            script.write_harness(folder)
            os.makedirs(f"{folder}/subject")
            for name, text in (
                ("subject/one.py", SUBJECT.replace("CHANGE", change)),
                (
                    "model.json",
                    '{"tensors": [{"name": "weight", "dtype": "F32", "shape": [3, 2]}]}',
                ),
                ("script.py", SCRIPT),
            ):
                with open(f"{folder}/{name}", "w") as file:
                    file.write(text)
            done = subprocess.run(
                [sys.executable, f"{folder}/script.py"], capture_output=True, text=True, timeout=120
            )
            return done.returncode, done.stdout + done.stderr

    def test_a_sound_job_does_not_show_it(self):
        self.assertEqual(self.ended("pass"), (0, "ok: did not reproduce\n"))

    def test_a_wrong_element_fails_on_the_rank_that_holds_it(self):
        code, output = self.ended("weight[2, 1] += 1 if case.rank == 0 else 0")
        self.assertEqual(code, 1, output)
        self.assertTrue(
            output.startswith("FAIL: rank 1 of 2, weight at `ready` of phase values: element 5 is")
        )

    def test_a_job_that_raises_is_an_error(self):
        code, output = self.ended("raise ValueError('no such shard')")
        self.assertEqual(code, 2, output)
        self.assertIn("ERROR: rank 0 of 2, in phase values: raised before its first stage", output)


if __name__ == "__main__":
    unittest.main()
