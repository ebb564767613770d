"""The pytest plugin and pytest's options, pytest-xdist, and what the fixtures do."""

import os
import pathlib
import subprocess
import textwrap

import pytest

from shardproof._plugin._outcomes_plugin_test import cases_of, command, environment, run

SEVERAL = """
pytestmark = pytest.mark.shardproof(world=2)

@pytest.mark.parametrize("number", range(6))
def test_number(number, shardproof):
    print("number", number)
    dist.barrier()
    assert number not in (2, 4)

def test_in_the_same_order():
    pass
"""


def numbers(ran, outcome):
    return [name[12:-1] for name, found in ran.cases.items()
            if name.startswith("test_number") and found[0] == outcome]  # fmt: skip


def test_maxfail_and_x(tmp_path):
    ran = run(tmp_path, SEVERAL, "--maxfail=2")
    assert (numbers(ran, "passed"), numbers(ran, "failure")) == (["0", "1", "3"], ["2", "4"])
    assert "stopping after 2 failures" in ran.text and ran.code == 1


def test_k_and_ids_and_s(tmp_path):
    ran = run(tmp_path, SEVERAL, "-s", "-v", "test_it.py::test_number[1]")
    assert numbers(ran, "passed") == ["1"] and ran.code == 0
    assert "[rank 0] number 1\n" in ran.text and "[rank 1] number 1\n" in ran.text
    assert "test_it.py::test_number[1]" in ran.text


def test_pdb_is_no_hang(tmp_path):
    source = """
    @pytest.mark.shardproof
    def test_stops():
        breakpoint()
    """
    ran = run(tmp_path, source, "--pdb", "-x")
    ran.is_told("test_stops", "failure", "a rank has no terminal")
    assert "--pdb: a rank has no terminal" in ran.text


def test_xdist(tmp_path):
    pytest.importorskip("xdist")
    ran = run(tmp_path, SEVERAL, "-n", "2", "-p", "xdist")
    assert sorted(numbers(ran, "passed")) == ["0", "1", "3", "5"]
    assert sorted(numbers(ran, "failure")) == ["2", "4"]
    ran.is_told("test_number[2]", "failure", "rank 0", "assert 2 not in (2, 4)", "raised")
    assert "2 failed, 5 passed" in ran.text


FIXTURES = """
def model(seed):
    torch.manual_seed(seed)
    return torch.nn.Linear(4, 3)

def stepped(seed):
    made = model(seed)
    optimizer = torch.optim.AdamW(made.parameters(), foreach=False)
    made(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return made, optimizer

def stepped_plainly(seed):
    assert not dist.is_initialized() and "RANK" not in os.environ
    return stepped(seed)

def fails():
    raise ValueError("no model")

def dies():
    os._exit(9)

@pytest.fixture(scope="session")
def once(tmp_path_factory):
    yield os.getpid()
    print("the end of the session fixture", file=sys.stderr)

@pytest.mark.shardproof(deadline=30)
class TestReference:
    def test_equal(self, shardproof, reference, once):
        made = reference(model, seed=3)
        assert set(made) == {"weight", "bias"} and torch.equal(made["bias"], model(3).bias)
        shardproof.equal(model(3), made)

    def test_differs(self, shardproof, reference):
        mine = model(3)
        if shardproof.rank == 1:
            mine.bias.data[2] = 7
        with pytest.raises(shardproof.Mismatch, match="bias on rank 1: element 2"):
            shardproof.equal(mine, reference(model, 3))

    def test_optimizer(self, shardproof, reference):
        made = reference(stepped_plainly, 3)
        assert "optimizer.weight.exp_avg" in made
        mine, optimizer = stepped(3)
        shardproof.equal(mine, made, optimizer=optimizer)

    def test_checkpoint(self, shardproof, reference):
        path = shardproof.scratch / "model.pt"
        if shardproof.rank == 0:
            torch.save(model(8).state_dict(), path)
        shardproof.barrier()
        shardproof.equal(model(8), reference(model, 3, checkpoint=path))

    def test_it_raises(self, reference):
        with pytest.raises(RuntimeError, match="ValueError: no model"):
            reference(fails)

    def test_it_dies(self, reference):
        with pytest.raises(RuntimeError, match="ended with exit code 9"):
            reference(dies)

    def test_no_name(self, reference):
        with pytest.raises(TypeError, match="at the top level of its module"):
            reference(lambda: None)

    def test_after(self, shardproof, reference, once):
        assert once == os.getpid()
        shardproof.equal(model(3), reference(model, 3))
"""


def test_reference(tmp_path):
    ran = run(tmp_path, FIXTURES)
    assert ran.code == 0 and "8 passed in" in ran.text, ran.text


OBSERVES = """
@pytest.mark.shardproof
@pytest.mark.parametrize("wrong", [False, True])
def test_observes(shardproof, wrong):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    if wrong and shardproof.rank == 1:
        model.weight.data[0, 1] = 9
    model = torch.nn.parallel.DistributedDataParallel(model) if not wrong else model
    shardproof.observe("ready", model=model)
"""


def test_what_is_observed_is_judged(tmp_path):
    program = tmp_path / "bin" / "shardproof"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\ntest -e "$2/run.json" && echo "FAIL of $1" && exit 1\n')
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    ran = run(tmp_path, OBSERVES, "-k", "True", PATH=path)
    ran.is_told(
        "test_observes[True]",
        "failure",
        "the evidence that the test recorded fails",
        "FAIL of report",
    )


def test_the_command_judges_what_is_observed(tmp_path):
    program = os.environ.get("SHARDPROOF")
    if not program:
        pytest.skip("$SHARDPROOF names no command")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "shardproof").symlink_to(pathlib.Path(program).resolve())
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    ran = run(tmp_path, OBSERVES, PATH=path)
    ran.is_told("test_observes[False]", "passed")
    assert "the source cannot be read: the job named no checkpoint" in ran.text  # a warning
    ran.is_told("test_observes[True]", "failure", "weight at `ready`", "on rank 1 of 2")


def test_no_torch(tmp_path):
    """Pytest itself needs none; a test with the mark says in one line that there is none."""
    (tmp_path / "torch.py").write_text("raise ImportError('none here')\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.shardproof\ndef test_it():\n    pass\n"
        "def test_other():\n    pass\n"
    )
    junit = tmp_path / "junit.xml"
    done = subprocess.run(
        command("--import-mode=importlib", f"--junitxml={junit}"), cwd=tmp_path, text=True,
        env=environment(PYTHONPATH=f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"),
        capture_output=True, timeout=60,
    )  # fmt: skip
    cases = cases_of(junit)
    assert cases["test_other"][0] == "passed"
    assert cases["test_it"][0] == "error"
    line = "shardproof has no ranks for this test: torch cannot be imported: none here"
    assert f"\n{line}\n" in done.stdout, done.stdout + done.stderr


def test_a_closed_stdin(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.shardproof\ndef test_it(shardproof):\n    assert shardproof\n"
    )
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *command("-s", "--basetemp=base")], cwd=tmp_path,
        env=environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0 and "1 passed in" in done.stdout, done.stdout + done.stderr


FILES = {
    "conftest.py": """
        import pytest
        seen = []

        @pytest.fixture(scope="module")
        def scoped():
            seen.append("made")
            yield list(seen)
            seen.append("ended")
    """,
    "test_first.py": """
        import pytest
        pytestmark = pytest.mark.shardproof

        def test_first(scoped):
            assert scoped == ["made"]

        def test_again(scoped):
            assert scoped == ["made"]
    """,
    "test_second.py": """
        import pytest

        @pytest.mark.shardproof
        def test_second(scoped):
            assert scoped == ["made", "ended", "made"]

        def test_in_between():
            pass
    """,
    "test_third.py": """
        import pytest, sys
        pytestmark = pytest.mark.shardproof
        if "shardproof._plugin._worker" in sys.modules:
            raise OSError("not in ranks")

        def test_third():
            pass
    """,
}


def test_files_in_turn_one_of_which_ranks_cannot_import(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    done = subprocess.run(
        command("--basetemp=base", "--junitxml=junit.xml"), cwd=tmp_path, env=environment(),
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    cases = cases_of(tmp_path / "junit.xml")
    kinds = {name: found[0] for name, found in cases.items()}
    assert kinds.pop("test_third") == "error", kinds
    assert "OSError: not in ranks" in done.stdout
    assert set(kinds.values()) == {"passed"}, done.stdout
