"""The GitHub Action's steps, run as GitHub would: inputs put in, each step in a bash of its own."""

import os
import re
import stat
import subprocess
import sys
import zipfile

import yaml
from checkpoints import f32, write_safetensors
from command import REPOSITORY, CommandTest, command

ACTION = REPOSITORY / "ci" / "action"
EXPRESSION = re.compile(r"\$\{\{ *([a-z.-]+) *\}\}")
LIMIT_S = 180


def load(name):
    return yaml.safe_load((ACTION / name).read_text())


def wheel(folder, script):
    """A wheel that holds the command `shardproof`: a script with this text."""
    path = folder / "shardproof-0.0.0-py3-none-any.whl"
    info = "shardproof-0.0.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        entry = zipfile.ZipInfo("shardproof-0.0.0.data/scripts/shardproof")
        entry.external_attr = (stat.S_IFREG | 0o755) << 16
        archive.writestr(entry, script)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: shardproof\nVersion: 0\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


class Runner:
    """Runs a composite action's steps; `outputs` and `page` are what they have written."""

    def __init__(self, test, inputs):
        self.test, self.action = test, load("action.yml")
        declared = self.action["inputs"]
        assert set(inputs) <= set(declared), inputs
        self.values = {f"inputs.{name}": str(inputs.get(name, one.get("default", "")))
                       for name, one in declared.items()}  # fmt: skip
        self.page, self.outputs = "", {}

    def put_in(self, text):
        return EXPRESSION.sub(lambda match: self.values[match[1]], text)

    def run(self):
        """The exit code of the first step that fails, or 0."""
        for step in self.action["runs"]["steps"]:
            assert step["shell"] == "bash" and set(step) <= {"name", "id", "shell", "env", "run"}
            page, outputs = self.test.dir / "page.md", self.test.dir / "outputs"
            for file in (page, outputs):
                file.write_text("")
            variables = {key: self.put_in(one) for key, one in step["env"].items()}
            done = self.test.run_process(
                "bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", self.put_in(step["run"]),
                timeout=LIMIT_S, GITHUB_STEP_SUMMARY=str(page), GITHUB_OUTPUT=str(outputs),
                GITHUB_ACTION_PATH=str(ACTION), GITHUB_RUN_ID="7", GITHUB_REPOSITORY="o/r",
                GITHUB_SERVER_URL="https://github.example", **variables)  # fmt: skip
            self.page += page.read_text()
            self.outputs |= dict(line.split("=", 1) for line in outputs.read_text().splitlines())
            self.last = done
            if done.code:
                break
        return self.last.code


class Action(CommandTest):
    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 240

    def setUp(self):
        super().setUp()
        # Its pip installs a wheel that runs the command under test.
        subprocess.run([sys.executable, "-m", "venv", self.dir / "venv"], check=True)
        self.wheel = wheel(self.dir, f'#!/bin/sh\nexec "{command()}" "$@"\n')
        self.inputs = {"package": self.wheel, "python": self.dir / "venv" / "bin" / "python"}

    def steps(self, **inputs):
        words = {name.replace("_", "-"): one for name, one in inputs.items()}
        runner = Runner(self, {**self.inputs, **words})
        runner.code = runner.run()
        return runner

    def compared(self, **inputs):
        for name, values in (("a", [1, 2]), ("b b", [1, 3])):
            write_safetensors(self.dir / f"{name}.safetensors", {"w": f32([2], values)})
        return self.steps(run='compare a.safetensors "b b.safetensors"', **inputs)

    def test_a_failure_is_on_the_page_and_the_code_is_passed_on(self):
        done = self.compared()
        self.assertEqual((done.code, done.outputs["exit-code"]), (1, "1"), str(done.last))
        self.assertIn("### Shardproof compare: fail, 1 finding", done.page)
        self.assertTrue((self.dir / "shardproof-report" / "result.json").is_file())

    def test_bad_input_is_on_the_page_too(self):
        for words, said in (("verify --no-such-option", "unknown option '--no-such-option'"),
                            ("compare 'a", "cannot be split"), ("", "is empty")):  # fmt: skip
            done = self.steps(run=words, report=f"r{len(words)}")
            self.assertEqual((done.code, done.outputs["exit-code"]), (2, "2"), str(done.last))
            self.assertIn(said, done.page)

    def test_no_input_becomes_part_of_a_script(self):
        mark = self.dir / "mark"
        done = self.steps(run=f"compare $(touch {mark}) `touch {mark}` ; touch {mark}")
        self.assertEqual(done.code, 2, str(done.last))
        self.assertFalse(mark.exists())
        done = self.steps(run="list", package=f"; touch {mark}")
        self.assertNotEqual(done.code, 0)
        self.assertFalse(mark.exists())


class MoreOfTheAction(Action):
    labels = "selftest multi-rank framework nightly"
    fixtures = "checkpoints"
    timeout_s = 240

    def test_a_small_subject(self):
        subject = self.write("s.py", (
            'CANNOT = {"plain": "one way", "identity": "x", "host_bound": "x", "keys": "x",\n'
            '          "save": "it only loads"}\n'
            "def run(case, observe):\n"
            '    model = case.build("cpu")\n'
            '    observe("built", model=model)\n'
            "    model.load_state_dict(case.state_dict(), strict=False)\n"
            '    observe("ready", model=model)\n'))  # fmt: skip
        python = os.environ["SHARDPROOF_TORCH_PYTHON"]
        source = os.path.join(os.environ["SHARDPROOF_CHECKPOINTS"], "qwen3-small")
        done = self.steps(run=f"verify --subject '{subject}' --checkpoint '{source}'\n "
                              f"--mesh dp_replicate=2 --python {python}")  # fmt: skip
        self.assertEqual((done.code, done.outputs["exit-code"]), (0, "0"), str(done.last))
        self.assertIn("### Shardproof verify: pass", done.page)
        self.assertIn("(https://github.example/o/r/actions/runs/7#artifacts)", done.page)
        report = self.dir / done.outputs["report"]
        for name in ("report.html", "junit.xml", "result.json", "summary.md"):
            self.assertTrue((report / name).is_file(), name)

    def test_known_and_baseline_reach_the_command(self):
        self.write("known.json", {"schema": 1, "known": [
            {"property": "compare.values", "kind": "differs", "tensor": "w", "owner": "a",
             "issue": "b", "expires": "2099-01-01"}]})  # fmt: skip
        done = self.compared(known="known.json")
        self.assertEqual(done.code, 0, str(done.last))
        self.assertIn("pass, 1 known finding", done.page)
        more = {"baseline": "shardproof-report/result.json", "min_comparisons": 99}
        done = self.compared(known="known.json", report="again", **more)
        self.assertEqual(done.code, 3, str(done.last))


class Workflow(CommandTest):
    def test_the_template_gives_inputs_that_the_action_has(self):
        action, workflow = load("action.yml"), load("workflow.yml")
        steps = workflow["jobs"]["verify"]["steps"]
        ours = [step for step in steps if "shardproof/ci/action@" in step.get("uses", "")]
        self.assertEqual(len(ours), 1)
        self.assertLessEqual(set(ours[0]["with"]), set(action["inputs"]))
        needed = {name for name, one in action["inputs"].items() if one.get("required")}
        self.assertLessEqual(needed, set(ours[0]["with"]))
        self.assertIn("schedule", workflow[True])  # YAML 1.1 reads `on` so

    def test_every_input_is_used_and_none_stands_in_a_script(self):
        action = load("action.yml")
        steps = action["runs"]["steps"]
        used = set(EXPRESSION.findall(str([step["env"] for step in steps])))
        self.assertEqual({f"inputs.{name}" for name in action["inputs"]}, used)
        self.assertFalse(EXPRESSION.findall(str([step["run"] for step in steps])))
