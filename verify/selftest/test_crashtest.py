"""`crashtest` on saves of PyTorch and safetensors as they are installed, and on small ones of sh
with mistakes in them: which crash each bad state needs, and that a script shows it.
"""

import json
import sys
import unittest

from command import CommandTest

MODELS = ("kill", "ext4-ordered", "posix")

TORCH = "import torch\nstate = {'w': torch.full((700, 3), 2.0), 'step': 2}\n"
DURABLY = """
import os
def durably(path, save):
    save(path + '.partial')
    with open(path + '.partial', 'rb') as file:
        os.fsync(file.fileno())
    os.rename(path + '.partial', path)
    directory = os.open('root', os.O_RDONLY)
    os.fsync(directory)
"""


def old_state():
    import torch  # here, since most of these tests do without it, and it takes its time

    return {"w": torch.full((700, 3), 1.0), "step": 1}


class Crashes(CommandTest):
    """What every test here needs; has none itself."""

    def setUp(self):
        super().setUp()
        (self.dir / "root").mkdir()
        done = self.shardproof("crashtest", "--root", "root", "--load", "cat {}", "--", "true")
        if "not permitted here" in done.err:
            self.skipTest(done.err.strip())

    def crashes(self, *words, code, timeout=110):
        """The document of a crash test, after it is checked for what always holds."""
        done = self.shardproof(
            "crashtest", "--root", "root", "--json", "out.json", *words, timeout=timeout
        )
        self.assert_exit(done, code)
        document = json.loads((self.dir / "out.json").read_text())
        self.assertEqual(document["verdict"], {0: "pass", 1: "fail", 3: "inconclusive"}[code])
        self.assertEqual(
            sum(model["bad"] for model in document["models"].values()), document["bad_count"]
        )
        self.assertEqual(document["bad_count"] > 0, code == 1)
        for model in document["models"].values():
            self.assertEqual(sum(model["outcomes"].values()), model["distinct"])
        self.shown = done.out
        return document

    def bad(self, document):
        return {model: document["models"][model]["bad"] for model in MODELS}

    def assert_scripts_show(self, document, at_least):
        """Each was seen to exit with 1 by the command; so it is seen here, and without
        Shardproof."""
        scripts = [script for group in document["groups"] for script in group["scripts"]]
        self.assertGreaterEqual(len(scripts), at_least)
        for script in scripts:
            self.assertTrue(script["seen"], script)
            text = (self.dir / script["path"]).read_text()
            self.assertNotIn("shardproof", text.lower())
            done = self.run_process(sys.executable, script["path"], timeout=60)
            self.assert_exit(done, 1)
            self.assertIn("bad: it is as told", done.out)
            report = (self.dir / script["path"]).with_name("report.md").read_text()
            self.assertIn(">>> crash", report)


class OfLibraries(Crashes):
    labels = "selftest fault"
    timeout_s = 240

    def save(self, code):
        return ("--", sys.executable, "-B", "-c", TORCH + code)

    def test_dcp_over_itself_needs_only_a_kill(self):
        import torch.distributed.checkpoint as dcp

        dcp.save(old_state(), checkpoint_id=self.dir / "root" / "ckpt", no_dist=True)
        code = (
            "import torch.distributed.checkpoint as dcp\n"
            "dcp.save(state, checkpoint_id='root/ckpt', no_dist=True)"
        )
        document = self.crashes("--report", "report", "--scripts", 2, *self.save(code), code=1)
        self.assertGreater(self.bad(document)["kill"], 0)
        self.assertEqual(
            document["what"], {"kind": "dcp", "path": "ckpt", "files": [], "named_by": ""}
        )
        self.assert_scripts_show(document, 2)

    def test_dcp_into_a_step_of_its_own_is_lost_by_no_kill(self):
        import torch.distributed.checkpoint as dcp

        dcp.save(old_state(), checkpoint_id=self.dir / "root" / "step-1", no_dist=True)
        code = (
            "import torch.distributed.checkpoint as dcp\n"
            "dcp.save(state, checkpoint_id='root/step-2', no_dist=True)"
        )
        document = self.crashes(*self.save(code), code=1)
        self.assertEqual(self.bad(document)["kill"], 0)
        self.assertEqual(
            [document["what"]["path"], document["old_what"]["path"]], ["step-2", "step-1"]
        )
        # The directory is not synced: the checkpoint may be gone, and the one before it is there.
        self.assertEqual({group["what"] for group in document["groups"]}, {"not durable"})

    def test_torch_save_that_is_synced_renamed_and_synced_passes(self):
        import torch

        torch.save(old_state(), self.dir / "root" / "ckpt.pt")
        code = DURABLY + "durably('root/ckpt.pt', lambda path: torch.save(state, path))"
        document = self.crashes(*self.save(code), code=0)
        self.assertGreater(document["models"]["posix"]["distinct"], 5)


class OfOtherLibraries(OfLibraries):
    labels = "selftest fault nightly"
    timeout_s = 240

    def test_torch_save_over_an_old_file_needs_only_a_kill(self):
        import torch

        torch.save(old_state(), self.dir / "root" / "ckpt.pt")
        document = self.crashes("--report", "report", "--scripts", 2,
                                *self.save("torch.save(state, 'root/ckpt.pt')"),
                                code=1)  # fmt: skip
        self.assertGreater(self.bad(document)["kill"], 0)
        self.assertEqual(document["groups"][0]["needs"], "kill")
        self.assertEqual(document["groups"][0]["what"], "lost")
        self.assertIn("ckpt.pt by torch.load", self.shown)
        self.assert_scripts_show(document, 2)

    def test_safetensors_needs_a_machine_that_stops(self):
        from safetensors.torch import save_file

        save_file({"w": old_state()["w"]}, self.dir / "root" / "model.safetensors")
        code = (
            "from safetensors.torch import save_file\n"
            "save_file({'w': state['w']}, 'root/model.safetensors')"
        )
        document = self.crashes("--report", "report", "--scripts", 2, *self.save(code), code=1)
        self.assertEqual(self.bad(document)["kill"], 0)
        self.assertGreater(document["models"]["posix"]["outcomes"]["wrong"], 0)
        self.assert_scripts_show(document, 1)


class OfPointers(Crashes):
    """A job loads what `latest` leads to, be it a link or a small file; so the command does."""

    labels = "selftest fault"
    timeout_s = 110
    saves = """
def fsync(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
def data(n):
    state = {'w': torch.full((700, 3), float(n)), 'step': n}
    durably(f'root/step-{n}.pt', lambda path: torch.save(state, path))
def link(n):
    os.symlink(TARGET % n, 'root/l')
    os.replace('root/l', 'root/latest.pt')
    fsync('root')
def text(n):
    with open('root/t', 'w') as file:
        file.write(f'step-{n}.pt')
    fsync('root/t')
    os.replace('root/t', 'root/latest')
    fsync('root')
"""

    def save(self, *steps):
        """-- and a command that does these."""
        code = TORCH + DURABLY + f"TARGET = {self.target!r}\n" + self.saves + "\n".join(steps)
        return ("--", sys.executable, "-B", "-c", code)

    def setUp(self):
        super().setUp()
        self.target = "step-%d.pt"

    def judged(self, first, *steps, code):
        self.assert_exit(self.run_process(*self.save(*first)[1:], timeout=60), 0)
        return self.crashes("--report", "report", "--scripts", 1, *self.save(*steps), code=code)

    def test_a_link_that_moves_after_the_data_passes(self):
        for target in ("step-%d.pt", str(self.dir / "root" / "step-%d.pt")):
            self.target = target
            document = self.judged(("data(1)", "link(1)"), "data(2)", "link(2)", code=0)
            self.assertEqual(document["what"]["files"], ["latest.pt"])
            self.assertEqual(document["what"], document["old_what"])
            self.assertGreater(document["models"]["kill"]["outcomes"]["old"], 3)
            for path in (self.dir / "root").iterdir():
                path.unlink()

    def test_a_link_that_moves_before_the_data_needs_only_a_kill(self):
        document = self.judged(("data(1)", "link(1)"), "link(2)", "data(2)", code=1)
        self.assertGreater(self.bad(document)["kill"], 0)
        self.assert_scripts_show(document, 1)

    def test_a_file_that_names_the_checkpoint_is_read(self):
        document = self.judged(("data(1)", "text(1)"), "data(2)", "text(2)", code=0)
        self.assertEqual(document["what"]["named_by"], "latest")
        self.assertIn("what latest names by torch.load", self.shown)

    def test_a_file_that_names_it_too_early_needs_only_a_kill(self):
        document = self.judged(("data(1)", "text(1)"), "text(2)", "data(2)", code=1)
        self.assertGreater(self.bad(document)["kill"], 0)
        self.assert_scripts_show(document, 1)

    def test_the_oldest_of_many_may_go(self):
        document = self.judged(
            ("data(1)", "data(2)"), "data(3)", "os.unlink('root/step-1.pt')", code=0
        )
        self.assertEqual(document["what"]["files"], ["step-3.pt"])
        self.assertEqual(document["old_what"]["files"], ["step-2.pt"])


class OfSmallSaves(Crashes):
    labels = "selftest fault"
    timeout_s = 110
    put = "printf '%04000d' 2 > {0} && sync {0} && "

    def setUp(self):
        super().setUp()
        self.write("root/ckpt", "1" * 3000)

    def save(self, script):
        return ("--load", "cat {}/ckpt", "--", "sh", "-c", "cd root && " + script)

    def test_a_sound_save_passes(self):
        document = self.crashes(*self.save(self.put.format("t") + "mv t ckpt && sync ."), code=0)
        self.assertIn("pass: each of", self.shown)
        self.assertEqual(document["groups"], [])

    def test_a_rename_before_the_sync_needs_a_machine_that_stops(self):
        script = "printf '%04000d' 2 > t && mv t ckpt && sync ckpt && sync ."
        document = self.crashes(*self.save(script), code=1)
        self.assertEqual(self.bad(document)["kill"], 0)
        self.assertGreater(self.bad(document)["posix"], 0)
        wrong = [group for group in document["groups"] if group["what"] == "wrong"]
        self.assertEqual({group["cause"] for group in wrong}, {"without the bytes of t"})

    def test_a_latest_that_moves_before_the_data_needs_only_a_kill(self):
        self.write("root/step-1", "1" * 3000)
        self.write("root/latest", "step-1")
        self.write("load.sh", 'cat "$1/$(cat "$1/latest")"')
        latest = "printf step-2 > l && sync l && mv l latest && sync . && "
        data = self.put.format("step-2") + "sync . && "
        words = ("--load", f"sh {self.dir}/load.sh {{}}", "--", "sh", "-c")
        document = self.crashes(*words, f"cd root && {latest}{data}true", code=1)
        self.assertGreater(self.bad(document)["kill"], 0)
        self.assertIn("step-2", document["groups"][0]["line"])
        self.write("root/latest", "step-1")
        (self.dir / "root" / "step-2").unlink()
        self.crashes(*words, f"cd root && {data}{latest}true", code=0)

    def test_an_error_of_a_sync_that_is_swallowed_needs_a_machine_that_stops(self):
        script = "printf '%04000d' 2 > t; sync no-such-file 2>/dev/null; mv t ckpt && sync ."
        document = self.crashes(*self.save(script), code=1)
        self.assertEqual(self.bad(document)["kill"], 0)
        self.assertGreater(self.bad(document)["ext4-ordered"] + self.bad(document)["posix"], 0)

    def test_a_loader_that_dies_is_told(self):
        self.write("load.sh", 'test -s "$1/ckpt" || kill -SEGV $$\ncat "$1/ckpt"')
        document = self.crashes("--model", "kill", "--load", f"sh {self.dir}/load.sh {{}}",
                                "--report", "report", "--", "sh", "-c",
                                "cd root && printf 2 > ckpt", code=1)  # fmt: skip
        self.assertEqual([group["what"] for group in document["groups"]], ["died"])
        self.assertIn("signal 11", document["groups"][0]["line"])
        self.assert_scripts_show(document, 1)

    def test_a_script_that_does_not_show_its_state_is_told(self):
        # It loads otherwise where the command does not make the states: nobody else will see them.
        self.write("load.sh", 'case "$1" in */shardproof-*) cat "$1/ckpt";; *) printf 2;; esac')
        document = self.crashes("--model", "kill", "--load", f"sh {self.dir}/load.sh {{}}",
                                "--report", "report", "--", "sh", "-c",
                                "cd root && printf 2 > ckpt", code=1)  # fmt: skip
        scripts = [script for group in document["groups"] for script in group["scripts"]]
        self.assertEqual([script["seen"] for script in scripts], [False] * len(scripts))
        self.assertIn("not shown by report/01/reproduce.py: ok: not bad", self.shown)
        self.assertIn(
            f"0 of {len(scripts)} scripts fail as described",
            self.shown.replace("script ", "scripts "),
        )

    def test_the_same_seed_finds_the_same(self):
        script = "printf '%09000d' 2 > a; printf 3 > b; printf 4 > c; mv a ckpt"
        documents = []
        for _ in range(2):
            self.write("root/ckpt", "1" * 3000)
            for name in "bc":
                (self.dir / "root" / name).unlink(missing_ok=True)
            documents.append(
                self.crashes("--combinations", 9, "--seed", 5, *self.save(script), code=1)
            )
        self.assertEqual(*documents)

    def test_what_says_nothing_is_inconclusive(self):
        done = self.crashes(*self.save("true"), code=3)
        self.assertIn("changed nothing below --root", done["inconclusive"])
        done = self.crashes(*self.save("cp ckpt t && mv t ckpt"), code=3)
        self.assertIn("cannot be told apart", done["inconclusive"])


class BadInput(Crashes):
    labels = "selftest fault"
    timeout_s = 60

    def crashtest_refused(self, *words, names, root="root", unchanged=True):
        words = ("crashtest", "--root", root, *words)
        if unchanged:
            return self.refused(*words, names=names)
        done = self.shardproof(*words)
        self.assert_exit(done, 2)
        self.assertEqual(len(done.err.splitlines()), 1, str(done))
        for name in names:
            self.assertIn(name, done.err)
        return done.err

    def test_options_are_checked_before_anything_runs(self):
        self.crashtest_refused(
            "--", "true", root="nowhere", names=["--root nowhere: there is no such directory"]
        )
        self.crashtest_refused(
            "--load", "pickle", "--", "touch", "root/x", names=["--load pickle", "dcp, torch"]
        )
        self.crashtest_refused(
            "--model", "kill,ntfs", "--", "touch", "root/x", names=["'ntfs'", "ext4-ordered"]
        )
        self.crashtest_refused("--report", "root/r", "--", "touch", "root/x", names=["--report"])
        self.crashtest_refused("--python", "/no/python", "--", "true", names=["/no/python"])
        self.crashtest_refused("--load", "cat {}", "--path", "x", "--", "true", names=["--path"])
        self.write("full/of", "something")
        self.crashtest_refused(
            "--report", "full", "--", "touch", "root/x", names=["--report full", "empty"]
        )

    def test_a_command_that_fails_is_named_with_its_last_line(self):
        load = ("--load", "cat {}/ckpt")
        self.crashtest_refused(*load, "--", "no-such-command", names=["starting no-such-command"])
        self.crashtest_refused(*load, "--report", "new", "--", "sh", "-c",
                               "echo a >&2; echo b >&2; exit 4",
                               names=["expected exit 0, found exit 4: b"])  # fmt: skip
        self.crashtest_refused(
            *load, "--save-deadline", 0.3, "--", "sleep", 60, names=["no end within"]
        )
        self.crashtest_refused(
            *load, "--before", "false", "--", "true", names=["--before", "exit 1"]
        )
        self.assertFalse((self.dir / "new").exists())

    def test_what_cannot_be_recorded_is_named(self):
        (self.dir / "root" / "a").write_text("1")
        load = ("--load", "cat {}/a")
        self.crashtest_refused(*load, "--", "ln", "-s", "../x", "root/latest",
                               names=["root/latest", "symlink"], unchanged=False)  # fmt: skip
        (self.dir / "root" / "latest").unlink()
        self.crashtest_refused(
            *load, "--", "mkfifo", "root/b", names=["root/b", "mknod"], unchanged=False
        )
        self.crashtest_refused(
            *load, "--", "touch", "root/c", names=["root/b", "something else"], unchanged=False
        )

    def test_two_checkpoints_need_a_path(self):
        import torch

        code = "import torch\ntorch.save(2, 'root/a/x.pt')\ntorch.save(2, 'root/b/x.pt')"
        for name in "ab":
            (self.dir / "root" / name).mkdir()
            torch.save(1, self.dir / "root" / name / "x.pt")
        self.crashtest_refused(
            "--", sys.executable, "-B", "-c", code, names=["--path", "a, b"], unchanged=False
        )


if __name__ == "__main__":
    unittest.main()
