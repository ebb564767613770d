"""Checkpoints behind gs:// and hf://, on stand-ins for their servers."""

import threading

from command import CommandTest
from stand_ins import Google, HuggingFace, Refused
from test_stored_formats import safetensors


class StoodIn(CommandTest):
    """Each test tries both kinds."""

    labels = "selftest nightly"
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.python = self.python_of("moto")
        for name in ("a", "run/step-1", "run/step-2"):
            self.write(f"{name}/model.safetensors", safetensors(w=[1], b=[ord(name[-1])]))
        self.write("cut/model.safetensors", safetensors(w=[1, 2, 3])[:-4])
        self.write("large/model.safetensors", safetensors(w=range(100_000)))
        for number in (1, 2, 3):
            self.write(f"parts/{number}.safetensors", safetensors(**{f"w{number}": [number]}))
        self.write("parts/model.safetensors.index.json",
                   {"weight_map": {f"w{n}": f"./{n}.safetensors" for n in (1, 2, 3)}})  # fmt: skip
        self.write("nan/model.safetensors", safetensors(w=[1, float("nan")]))
        packed = self.run_process("tar", "cf", "a.tar", "a")
        self.assert_exit(packed, 0)
        self.stand_ins = [kind() for kind in (Google, HuggingFace)]
        for one in self.stand_ins:
            self.addCleanup(one.close)
            for path in self.dir.rglob("*"):
                if path.is_file():
                    one.put(str(path.relative_to(self.dir)), path.read_bytes())

    def options(self, one):
        return {"HF_HOME": str(self.root / "hf"), "NO_PROXY": "127.0.0.1", **one.variables()}

    def audited(self, one, *words, code):
        return self.judged("audit", *words, "--python", self.python, code=code, **self.options(one))

    def refuses(self, one, url, *names, **variables):
        return self.refused("audit", url, "--python", self.python, names=[url, *names],
                            **self.options(one), **variables)  # fmt: skip

    def test_are_audited_as_the_files_are(self):
        for one in self.stand_ins:
            for name in ("a", "parts"):
                plain = self.judged("audit", name, code=0)["tensors"]
                found = self.audited(one, f"{one.root}/{name}", code=0)["tensors"]
                self.assertEqual(found, plain, name)
            for name, code in {"a/": 0, "a.tar": 0, "a/model.safetensors": 0, "run": 0, "large": 0,
                               "cut": 1}.items():  # fmt: skip
                self.audited(one, f"{one.root}/{name}", code=code)
            self.audited(one, f"{one.root}/nan", "--finite", code=1)
        for name in ("org/bucket@v1.0/a", "models/org/bucket/a", "org/bucket@refs/pr/1/parts",
                     "org/bucket@refs%2Fpr%2F1/parts"):  # fmt: skip
            self.audited(self.stand_ins[1], f"hf://{name}", code=0)

    def test_are_compared(self):
        # compare has no --python.
        (packages,) = map(str, self.python.parents[1].glob("lib/python*/site-packages"))
        for one in self.stand_ins:
            for words, code in {(f"{one.root}/a", "a"): 0, ("parts", f"{one.root}/parts"): 0,
                                (f"{one.root}/run/step-1", f"{one.root}/run/step-2"): 1,
                                ("a", f"{one.root}/nan"): 1}.items():  # fmt: skip
                self.judged("compare", *words, code=code, PYTHONPATH=packages, **self.options(one))
            cut = f"{one.root}/cut"
            self.refused("compare", "a", cut, names=[f"{cut}/model.safetensors", "data_offsets"],
                         PYTHONPATH=packages, **self.options(one))  # fmt: skip

    def test_what_is_not_there_is_told(self):
        for one in self.stand_ins:
            for url, why in one.missing.items():
                self.refuses(one, url, why)

    def test_a_server_that_stalls_is_not_waited_for(self):
        for one in self.stand_ins:
            until = threading.Event()
            self.addCleanup(until.set)
            for what in ("on_list", "on_read"):
                one.on_read = one.on_list = lambda name: None
                setattr(one, what, lambda name, until=until: until.wait(60))
                self.refuses(one, f"{one.root}/a", "3 s", SHARDPROOF_URL_SECONDS="3")
            until.set()

    def test_what_changes_while_it_is_read_is_told(self):
        name = "large/model.safetensors"
        whole = (self.dir / name).read_bytes()
        changes = {"written anew": whole[:-1] + b"\1", "cut": whole[: len(whole) // 2],
                   "gone": None}  # fmt: skip
        for one in self.stand_ins:
            for what, content in changes.items():
                one.put(name, whole)
                reads = []

                def change(read, one=one, content=content, reads=reads):
                    reads.append(read)
                    if len(reads) == 2 and content is None:
                        del one.objects[name]
                        raise Refused(404, "", X_Error_Code="EntryNotFound")
                    if len(reads) == 2:
                        one.put(name, content)

                one.on_read = change
                said = self.refuses(one, f"{one.root}/large")
                self.assertGreater(len(reads), 1, what)
                if what == "written anew":
                    self.assertIn("expected nothing to change", said)

    def test_what_may_be_listed_but_not_read_is_told(self):
        for one in self.stand_ins:

            def refuse(name):
                raise Refused(403, "no access", X_Error_Code="GatedRepo")

            one.on_read = refuse
            self.refuses(one, f"{one.root}/a", "model.safetensors")
