"""Wrong subjects and meshes are refused before a rank is started."""

from pathlib import Path

from command import REPOSITORY, CommandTest, checkpoint

SOUND = "def run(case, observe):\n    pass\n"


class BadSubjects(CommandTest):
    labels = "selftest fast"
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
        self.refuse(["/subject", "Python file"], path)

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
        for mesh in ("0x2", "2x", "axb", "2x2x2", "dp=2,2", "dp_shard=-1"):
            with self.subTest(mesh):
                path = REPOSITORY / "verify" / "subjects" / "ddp.py"
                self.refuse(["mesh"], path, "--mesh", mesh)

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
        self.refuse(["/steps", "at least 2"], path, "--steps", "1")


class MissingKeys(CommandTest):
    """FSDP2 on a checkpoint that lacks a key: the framework's own initial value, the same on all ranks."""

    labels = "selftest multi-rank"
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
