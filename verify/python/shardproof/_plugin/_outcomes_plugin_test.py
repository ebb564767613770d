"""The pytest plugin: tests that pass, fail, skip and warn on several ranks, as pytest tells it."""

import dataclasses
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import time
import xml.etree.ElementTree

import pytest

PACKAGE = pathlib.Path(__file__).parents[1]
BEGIN = """
import os, sys, time, signal, threading, warnings, pathlib
import pytest, torch
import torch.distributed as dist

"""


@dataclasses.dataclass
class Ran:
    """What a run of pytest came to. cases: (outcome, message, text) by name of the test."""

    code: int
    text: str
    cases: dict
    seconds: float

    def is_told(self, name, outcome, *words):
        found = self.cases[name]
        assert found[0] == outcome, (name, *found)
        for word in words:
            assert word in " ".join((found[1] + " " + found[2]).split()), (name, word, *found)


def command(*options) -> list[str]:
    """Pytest, with the plugin: installed, or as a checkout has it."""
    points = importlib.metadata.entry_points(group="pytest11")
    own = (
        [] if "shardproof" in {each.name for each in points} else ["-p", "shardproof.pytest_plugin"]
    )
    return [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *own, *options]


def environment(**more) -> dict:
    paths = [str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


def run(folder, source, *options, conftest="", seconds=120, **more) -> Ran:
    """Pytest on a file of this source, with torch and what tests need imported."""
    pathlib.Path(folder, "test_it.py").write_text(BEGIN + textwrap.dedent(source))
    pathlib.Path(folder, "conftest.py").write_text(textwrap.dedent(conftest))
    junit = pathlib.Path(folder, "junit.xml")
    begin = time.monotonic()
    done = subprocess.run(
        [*command(f"--basetemp={folder}/base", f"--junitxml={junit}"), *options], cwd=folder,
        env=environment(**more), capture_output=True, text=True, timeout=seconds,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    cases = cases_of(junit) if junit.exists() else {}
    return Ran(done.returncode, done.stdout + done.stderr, cases, time.monotonic() - begin)


def cases_of(junit) -> dict:
    found = {}
    for case in xml.etree.ElementTree.parse(junit).iter("testcase"):
        child = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        kind = "passed" if child is None else child.tag
        text = "".join(case.itertext())
        found[case.get("name")] = (kind, "" if child is None else child.get("message", ""), text)
    return found


def strays(mark) -> list[str]:
    """Processes, zombies among them, that have this text in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(f"{entry.name} {(entry / 'cmdline').read_bytes()[:200]!r}")
            except OSError:
                continue
    return found


ORDINARY = """
@pytest.fixture(scope="module")
def made_once():
    made_once.count = getattr(made_once, "count", 0) + 1
    yield os.getpid()

made_once_pids = []

@pytest.mark.shardproof(world=2)
class TestRanks:
    def test_a_group(self, shardproof):
        assert (dist.get_rank(), dist.get_world_size()) == (shardproof.rank, 2)
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor.item() == 2

    @pytest.mark.parametrize("name", ["one", "two words"])
    def test_parameters(self, name, tmp_path, monkeypatch, capsys):
        monkeypatch.setenv("NAME", name)
        print(os.environ["NAME"])
        assert capsys.readouterr().out == name + "\\n"
        assert list(tmp_path.iterdir()) == []

    def test_one_process(self, made_once):
        made_once_pids.append(made_once)

    def test_the_same_process(self, made_once):
        assert made_once_pids == [made_once] == [os.getpid()]

    def test_raises(self):
        with pytest.raises(ValueError, match="bad"):
            raise ValueError("bad")

def test_in_pytest_itself(from_conftest):
    assert from_conftest == "told" and not dist.is_initialized()

@pytest.mark.shardproof(world=3, deadline=30)
def test_three(shardproof, from_conftest):
    assert shardproof.world == dist.get_world_size() == 3
    (shardproof.scratch / str(shardproof.rank)).write_text(from_conftest)
    shardproof.barrier()
    assert sorted(each.name for each in shardproof.scratch.iterdir()) == ["0", "1", "2"]

@pytest.mark.shardproof(world=1)
def test_one(record_property):
    record_property("key", "value")
    assert dist.get_world_size() == 1

@pytest.mark.shardproof
def test_skip():
    pytest.skip("not today")

@pytest.mark.shardproof
@pytest.mark.skipif(True, reason="never")
def test_skip_by_mark():
    raise AssertionError

@pytest.mark.shardproof(backend="nccl", world=64)
def test_gpus():
    raise AssertionError

@pytest.mark.shardproof
@pytest.mark.xfail(reason="known")
def test_xfail():
    raise ValueError

@pytest.mark.shardproof
@pytest.mark.xfail(reason="known")
def test_xpass():
    pass

@pytest.mark.shardproof
def test_warns(shardproof):
    warnings.warn("of all")
    if shardproof.rank == 1:
        warnings.warn("of one", DeprecationWarning)

@pytest.mark.shardproof
def test_the_same_numbers_on_all_ranks():
    own = torch.rand(4)
    other = own.clone()
    dist.broadcast(other, 0)
    assert torch.equal(own, other)
"""


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory):
    conftest = """
        import pytest

        @pytest.fixture
        def from_conftest():
            return "told"
    """
    return run(tmp_path_factory.mktemp("ordinary"), ORDINARY, "-rA", conftest=conftest)


def test_what_passes(ordinary):
    assert ordinary.code == 0, ordinary.text
    for name in ("test_a_group", "test_parameters[one]", "test_parameters[two words]", "test_one",
                 "test_the_same_process", "test_raises", "test_in_pytest_itself", "test_three",
                 "test_the_same_numbers_on_all_ranks", "test_warns"):  # fmt: skip
        ordinary.is_told(name, "passed")
    assert "11 passed, 3 skipped, 1 xfailed, 1 xpassed" in ordinary.text, ordinary.text


def test_what_is_skipped(ordinary):
    ordinary.is_told("test_skip", "skipped", "not today")
    ordinary.is_told("test_skip_by_mark", "skipped", "never")
    ordinary.is_told("test_gpus", "skipped", "backend nccl")


def test_warnings_are_told_once_and_by_rank(ordinary):
    assert ordinary.text.count("UserWarning: of all\n") == 1
    assert "DeprecationWarning: of one [rank 1]" in ordinary.text


FAILING = """
def model():
    torch.manual_seed(0)
    return torch.nn.Linear(4, 3)

@pytest.mark.shardproof
def test_differs(shardproof):
    print("of rank", shardproof.rank)
    made = model()
    if shardproof.rank == 1:
        made.weight.data[1, 2] = 5
    shardproof.check(made)

@pytest.mark.shardproof
def test_an_assertion(shardproof):
    assert shardproof.rank + 1 == 2

@pytest.mark.shardproof
def test_skip_on_one(shardproof):
    if shardproof.rank == 0:
        pytest.skip("not here")

@pytest.mark.shardproof(world=2)
@pytest.mark.xfail(strict=True, reason="is mended")
def test_xpass_strict():
    pass

@pytest.mark.shardproof
@pytest.mark.xfail(raises=KeyError)
def test_another_error():
    raise ValueError("other")

@pytest.fixture
def broken(shardproof):
    if shardproof.rank == 1:
        raise OSError("no fixture")

@pytest.mark.shardproof
def test_fixture(broken):
    pass

@pytest.fixture
def broken_at_end():
    yield
    raise OSError("no end")

@pytest.mark.shardproof
def test_teardown(broken_at_end):
    pass

@pytest.mark.shardproof(world="two")
def test_two():
    pass

@pytest.mark.shardproof(world=0)
def test_none():
    pass

@pytest.mark.shardproof(2)
def test_unnamed():
    pass

@pytest.mark.shardproof(ranks=2)
def test_unknown():
    pass

@pytest.mark.shardproof(backend="nosuch")
def test_backend():
    pass

def test_no_mark(shardproof):
    pass
"""


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    return run(tmp_path_factory.mktemp("failing"), FAILING, "-rA")


def test_a_failing_test_shows_rank_tensor_and_element(failing):
    words = ("weight on rank 1: element 6 is 0x40a00000", "shardproof.check(made)")
    failing.is_told("test_differs", "failure", *words, "raised first", "raised the same")
    assert "def conclude" not in failing.text  # nothing of Shardproof's own code
    section = re.search(r"Captured stdout \(rank 1 of 2\) -+\nof rank 1\n", failing.text)
    assert section, failing.text


def test_a_failing_assertion_is_shown_with_its_values(failing):
    failing.is_told("test_an_assertion", "failure", "rank 0: assert (0 + 1) == 2")
    assert "rank 0 of 2 raised" in failing.text


def test_a_skip_on_one_rank_is_a_failure(failing):
    words = "rank 0 of 2 skipped the test, and the others did not: Skipped: not here"
    failing.is_told("test_skip_on_one", "failure", words)


def test_xfail_that_does_not_hold(failing):
    failing.is_told("test_xpass_strict", "failure", "[XPASS(strict)] is mended")
    failing.is_told("test_another_error", "failure", "ValueError: other")


def test_fixtures_that_fail(failing):
    failing.is_told("test_fixture", "error", "rank 1", "OSError: no fixture")
    failing.is_told("test_teardown", "error", "OSError: no end")


def test_marks_that_cannot_be(failing):
    begin = "@pytest.mark.shardproof: "
    failing.is_told("test_two", "error", begin + "world is 'two'; it must be a whole number")
    failing.is_told("test_none", "error", begin + "world is 0")
    failing.is_told("test_unnamed", "error", begin + "it takes world, backend, deadline")
    failing.is_told("test_unknown", "error", begin + "there is no 'ranks'")
    failing.is_told("test_backend", "error", "backend", "nosuch")
    failing.is_told("test_no_mark", "error", "@pytest.mark.shardproof(world=...)")
