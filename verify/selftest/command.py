"""Runs the real command for the self-tests, and what every such test checks after each run.

The command is the one that the environment variable SHARDPROOF names. Every run must end by itself
within its time, leave no process behind and leave nothing in its temporary directory.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import uuid
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
WARM_PYTHON = REPOSITORY / "verify" / "selftest" / "warm_python.py"
MARK = "SHARDPROOF_SELFTEST_RUN"
LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK")


def command():
    """Path of the command under test."""
    return os.environ["SHARDPROOF"]


def checkpoint(name):
    """A checkpoint that make_checkpoints.py made with the real Transformers."""
    return str(Path(os.environ["SHARDPROOF_CHECKPOINTS"]) / name)


def without_device(device):
    """What the command says if this machine has no such device; else an empty text."""
    words = [command(), "verify", "--case", REPOSITORY / "fixtures" / "cases" / "smoke.json",
             "--device", device, "--world", "1"]  # fmt: skip
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 77 else ""


def processes_with(mark):
    """Ids of the live processes whose environment holds this mark."""
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            environment = (directory / "environ").read_bytes()
            state = (directory / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except (OSError, IndexError):
            continue
        if state != "Z" and f"{MARK}={mark}".encode() in environment.split(b"\0"):
            found.append(int(directory.name))
    return found


def processes_in(directory):
    """Ids of the live processes whose current directory is this one or below."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if Path(entry, "cwd").readlink().is_relative_to(directory):
                found.append(int(entry.name))
    return found


def snapshot(directory):
    """{path below the directory: hash of the file, or "directory"}."""
    entries = {}
    for path in sorted(Path(directory).rglob("*")):
        is_file = path.is_file() and not path.is_symlink()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else "directory"
        entries[str(path.relative_to(directory))] = content
    return entries


def wait_until(holds, seconds):
    """Whether holds() became true in time; there is no event to wait for here, so it asks again."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Done:
    """A finished run: code, out, err, seconds."""

    def __init__(self, code, out, err, seconds=0.0):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def json(self):
        return json.loads(self.out)

    def __str__(self):
        return (
            f"exit code {self.code}\n--- stdout\n{self.out[-4000:]}\n--- stderr\n{self.err[-4000:]}"
        )


class CommandTest(unittest.TestCase):
    """A test with a directory of its own, in which the command runs."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="selftest-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.dir, self.temporary = self.root / "work", self.root / "tmp"
        self.dir.mkdir()
        self.temporary.mkdir()

    def environment(self, mark, **variables):
        """The caller's environment without a launcher's variables, with the test's own."""
        kept = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES}
        kept.update({MARK: mark, "TMPDIR": str(self.temporary), "OMP_NUM_THREADS": "1"})
        return {**kept, **variables}

    def start(self, words, mark, **variables):
        """Starts a process in the test's directory, its output piped."""
        return subprocess.Popen([str(word) for word in words], cwd=self.dir, text=True,
                                env=self.environment(mark, **variables), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip

    def python_of(self, environment):
        """The Python of an environment that ci/environment makes, in its pinned version; skips the
        test if it was not made."""
        pins = REPOSITORY / "ci" / "requirements" / "environments" / f"{environment}.txt"
        (version,) = [line.partition("==")[2] for line in pins.read_text().split()
                      if line.startswith(f"{environment}==")]  # fmt: skip
        folder = Path(sys.prefix) / "environments" / f"{environment}-{version}"
        if not (folder / ".complete").exists():
            self.skipTest(f"ci/environment {environment} makes what this needs")
        return folder / "bin" / "python"

    def run_process(self, *words, timeout=60, **variables):
        """Runs a program to its end; fails if that takes too long or something stays behind."""
        mark, began = uuid.uuid4().hex, time.monotonic()
        process = self.start(words, mark, **variables)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.end(mark)
            out, err = process.communicate()
            self.fail(f"still running after {timeout} s: {words}\n{out}\n{err}")
        left = processes_with(mark)
        # Forks of the warm Python do not have the mark, and take a moment to be ended.
        wait_until(lambda: not processes_in(self.dir), 5)
        left += processes_in(self.dir)
        self.end(mark)
        self.assertEqual(left, [], f"processes left behind by {words}")
        return Done(process.returncode, out, err, time.monotonic() - began)

    def run_script(self, script, *words, **options):
        """Runs a Python script in a fork of the warm Python."""
        return self.run_process(WARM_PYTHON, "run", script, *words, **options)

    def shardproof(self, *words, timeout=60, **variables):
        """Runs the command; nothing may stay in its temporary directory."""
        if "--subject" in words and "--python" not in words:
            words = (*words, "--python", WARM_PYTHON)
        done = self.run_process(command(), *words, timeout=timeout, **variables)
        left = sorted(path.name for path in self.temporary.iterdir())
        self.assertEqual(left, [], f"left in the temporary directory by {words}")
        return done

    def end(self, mark):
        """Ends what a run of this test has left."""
        for pid in processes_with(mark) + processes_in(self.dir):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    def write(self, name, content):
        """Writes a file in the test's directory: bytes, text, or an object as JSON."""
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def assert_exit(self, done, code):
        self.assertEqual(done.code, code, str(done))

    def judged(self, *words, code, **options):
        """Runs with --json -, expects this exit code, returns the document."""
        done = self.shardproof(*words, "--json", "-", **options)
        self.assert_exit(done, code)
        document = done.json()
        self.assertEqual(document.get("exit_code", code), code)
        return document

    def refused(self, *words, names, **options):
        """Bad input: exit code 2, one line that names what is wrong, and nothing written."""
        before = snapshot(self.dir)
        done = self.shardproof(*words, **options)
        self.assert_exit(done, 2)
        lines = done.err.splitlines()
        self.assertEqual(len(lines), 1, f"expected one line on stderr\n{done}")
        self.assertTrue(lines[0].startswith("shardproof: "), str(done))
        for name in names:
            self.assertIn(name, lines[0])
        self.assertEqual(done.out, "")
        self.assertEqual(snapshot(self.dir), before, "something was written")
        return lines[0]


if __name__ == "__main__":
    sys.exit("a module of support; run run_test.py")
