"""Wrong subjects and meshes are refused before a rank is started."""

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
