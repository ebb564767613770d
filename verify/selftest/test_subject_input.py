"""Wrong subjects and meshes are refused before a rank is started."""

from pathlib import Path

from command import REPOSITORY, CommandTest, checkpoint

SOUND = "def run(case, observe):\n    pass\n"


class BadSubjects(CommandTest):
    labels = "selftest framework"
    fixtures = "checkpoints"

    def refuse(self, names, subject, *more):
        self.refused("verify", "--subject", subject, "--checkpoint",
                     checkpoint("llama-tied-small"), *more, names=names)  # fmt: skip

    def test_no_such_file(self):
        self.refuse(["nowhere.py", "no such file"], "nowhere.py")

    def test_not_python(self):
        path = self.write("broken.py", "def run(case, observe:\n")
        self.refuse(["broken.py:1", "not Python"], path)

    def test_other_suffix(self):
        path = self.write("subject.txt", SOUND)
        self.refuse(["--subject", "Python file"], path)

    def test_no_run(self):
        path = self.write("empty.py", "x = 1\n")
        self.refuse(["empty.py", "def run(case, observe)"], path)

    def test_run_takes_too_little(self):
        path = self.write("short.py", "def run(case):\n    pass\n")
        self.refuse(["short.py:1", "run takes (case)"], path)

    def test_cannot_is_no_literal(self):
        path = self.write("computed.py", "CANNOT = dict(plain='x')\n" + SOUND)
        self.refuse(["computed.py:1", "literal dict"], path)

    def test_unknown_capability(self):
        path = self.write("odd.py", "CANNOT = {'fly': 'no wings'}\n" + SOUND)
        self.refuse(["odd.py", "'fly'", "known are", "identity"], path)

    def test_bugs_and_faults_act_in_the_reference(self):
        path = self.write("sound.py", SOUND)
        self.refuse(["buffer/nan", "reference"], path, "--inject", "buffer/nan@x")
        self.refuse(["loading.buffers_cast", "reference"], path, "--bug", "loading.buffers_cast")

    def test_python_that_is_none(self):
        path = self.write("sound.py", SOUND)
        self.refuse(["/no/python", "No such file"], path, "--python", "/no/python")

    def test_meshes(self):
        for mesh in ("", "0x2", "2x", "axb", "2x2x2x2", "dp=2,2", "dp_shard=-1"):
            with self.subTest(mesh):
                path = REPOSITORY / "verify" / "subjects" / "ddp.py"
                self.refuse(["mesh"], path, "--mesh", mesh)

    def test_a_model_of_its_own_needs_a_checkpoint(self):
        path = self.write("own.py", SOUND)
        self.refused("verify", "--subject", path, names=["asks for no case.build", "--checkpoint"])

    def test_unknown_option(self):
        path = self.write("choosy.py", "OPTIONS = {'save': ['dcp', 'async']}\n" + SOUND)
        self.refuse(["option speed", "declares save"], path, "--option", "speed=1")
        self.refuse(["save=tape", "dcp, async"], path, "--option", "save=tape")
        self.refuse(["--option save", "NAME=VALUE"], path, "--option", "save")

    def test_shows_of_an_unknown_kind(self):
        path = self.write("claims.py", "SHOWS = {'speed': ['high']}\n" + SOUND)
        self.refuse(["claims.py:1", "SHOWS", "placements"], path)

    def test_one_step_cannot_be_resumed(self):
        path = self.write("sound.py", SOUND)
        self.refuse(["--steps", "at least 2"], path, "--steps", "1")

    def test_nested_too_deeply(self):
        path = self.write("deep.py", "CANNOT = {'plain': " + "-" * 5000 + "1}\n" + SOUND)
        self.refuse(["deep.py"], path)

    def test_text_that_is_none(self):
        path = self.write("half.py", "OPTIONS = {'a\\ud800': ['x']}\n" + SOUND)
        self.refuse(["half.py:1", "OPTIONS"], path)

    def test_python_that_prints_nothing(self):
        path = self.write("sound.py", SOUND)
        self.refuse(
            ["/bin/true", "to print the subject's declaration"], path, "--python", "/bin/true"
        )


# Replicated by hand: every rank reads for itself, rank 0 alone has something to show at `loaded`,
# and what it saves is in no format that the verifier reads.
OWN_WAY = """
import os
import subprocess
import time
import torch

CANNOT = {"plain": "it has one way of loading", "keys": "it looks at none", "host_bound": "none"}


def run(case, observe):
    subprocess.Popen(["sleep", "600"])  # forgotten
    path = case.save_to + "/model.pt"
    if not case.resumes:
        model = case.build("cpu")
        observe("built", model=model, content="undefined")
        model.load_state_dict(case.state_dict(), strict=False)
        if case.rank == 0:
            observe("loaded", model=model)
        observe("ready", model=model)
        os.makedirs(case.save_to, exist_ok=True)
        if case.rank == 0:
            torch.save(model.state_dict(), path + ".partial")
            os.rename(path + ".partial", path)
        observe("saved", model=model)
        while not os.path.exists(path):
            time.sleep(0.01)
    model = case.build("cpu")
    model.load_state_dict(torch.load(path))
    observe("restored", model=model)
"""


class OwnWay(CommandTest):
    """A sound subject that goes about it otherwise than those of this repository."""

    labels = "selftest multi-rank framework"
    timeout_s = 150
    fixtures = "checkpoints"

    def test_a_job_without_collectives_and_with_files_of_its_own_passes(self):
        path = self.write("own_way.py", OWN_WAY)
        # That no process is left behind is checked by judged().
        document = self.judged("verify", "--subject", path, "--checkpoint",
                               checkpoint("llama-tied-small"), "--world", "2", code=0,
                               timeout=120)  # fmt: skip
        verdicts = {one["id"]: one["verdict"] for one in document["properties"]}
        self.assertEqual(verdicts["sharding.collectives_in_order"], "skip")
        for judged in ("checkpoint.round_trip", "checkpoint.reshard", "loading.equals_source"):
            self.assertEqual(verdicts[judged], "pass")


class MissingKeys(CommandTest):
    """FSDP2 on a checkpoint that lacks a key: the framework's own initial value, the same on all
    ranks."""

    labels = "selftest multi-rank framework"
    timeout_s = 150
    fixtures = "checkpoints"
    missing = "model.norm.weight"

    def test_what_is_missing_is_alike_on_all_ranks(self):
        from safetensors.torch import load_file, save_file

        source, lacking = Path(checkpoint("qwen3-small")), self.dir / "lacking"
        lacking.mkdir()
        (lacking / "config.json").write_text((source / "config.json").read_text())
        tensors = {}
        for path in source.glob("*.safetensors"):
            tensors.update(load_file(path))
        del tensors[self.missing]
        save_file(tensors, lacking / "model.safetensors", metadata={"format": "pt"})
        document = self.judged(
            "verify", "--subject", REPOSITORY / "verify" / "subjects" / "fsdp2.py", "--checkpoint",
            lacking, "--world", "2", "--steps", "0", "--allow-missing", self.missing, code=0,
            timeout=120,
        )  # fmt: skip
        verdicts = {one["id"]: one["verdict"] for one in document["properties"]}
        self.assertEqual(verdicts["loading.missing_alike"], "pass")
        self.assertEqual(verdicts["loading.keys_match"], "pass")


class WithoutCheckpoint(CommandTest):
    """A subject that takes any model is given one that has everything."""

    labels = "selftest multi-rank framework"
    timeout_s = 240

    def test_it_is_given_a_model_with_everything(self):
        path = REPOSITORY / "verify" / "subjects" / "ddp.py"
        document = self.judged("verify", "--subject", path, "--world", "2", "--quick", code=0,
                               timeout=200)  # fmt: skip
        self.assertEqual(document["compared"]["phases"], ["values"])
        verdicts = {one["id"]: one["verdict"] for one in document["properties"]}
        for judged in ("buffers_preserved", "keys_match", "missing_alike", "ties_kept"):
            self.assertEqual(verdicts[f"loading.{judged}"], "pass")
