import ast
import sys
from pathlib import Path

import mutate_subject
import pytest
from subject_mutants import mutants_of

SUBJECT = '''"""A subject."""
import helper
CANNOT = {"plain": 1}


def run(case, observe):
    if case.rank == 0 and case.saves:
        observe("ready", model=make(case, step=1))
    return sorted(n for n in range(1, case.steps + 1) if n < 3)
'''


def changes(source):
    return {(mutant.kind, mutant.change) for mutant in mutants_of("s.py", source)}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("call left out", "observe('ready', model=make(case, step=1)) -> pass"),
        ("argument left out", "make(..., step=1) -> make(...)"),
        ("arguments swapped", "range(1, case.steps + 1) -> range(case.steps + 1, 1)"),
        ("condition turned",
         "case.rank == 0 and case.saves -> not (case.rank == 0 and case.saves)"),
        ("part of a condition left out", "case.rank == 0 and case.saves -> case.saves"),
        ("comparison", "case.rank == 0 -> case.rank != 0"),
        ("comparison", "n < 3 -> n <= 3"),
        ("condition left out", "n < 3 -> True"),
        ("operator", "case.steps + 1 -> case.steps - 1"),
        ("constant", "case.steps + 1 -> case.steps + 2"),
        ("constant", "make(..., step=1) -> make(..., step=2)"),
        ("another rank", "case.rank == 0 -> ((case.rank + 1) % case.world_size) == 0"),
        ("nothing returned",
         "return sorted((n for n in range(1, case.steps + 1) if n < 3)) -> return None"),
    ],
)  # fmt: skip
def test_a_mistake_of_each_kind(kind, change):
    assert (kind, change) in changes(SUBJECT)


def test_each_is_a_program_with_one_change_and_none_touches_what_it_declares():
    mutants = mutants_of("s.py", SUBJECT)
    assert len({mutant.source for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        ast.parse(mutant.source)
        lines = mutant.source.splitlines()
        assert lines[:6] == SUBJECT.splitlines()[:6]
        assert sum(a != b for a, b in zip(lines, SUBJECT.splitlines(), strict=True)) == 1


def test_helpers_are_those_beside_it_and_those_of_the_package():
    subjects = Path(__file__).resolve().parents[1] / "verify" / "subjects"
    beside, packaged = mutate_subject.helpers_of(subjects / "fsdp2.py")
    assert (set(beside), set(packaged)) == ({"training.py", "dcp_state.py"}, set())
    beside, packaged = mutate_subject.helpers_of(subjects / "transformers_accelerate.py")
    assert not beside
    assert set(packaged) == {"job.py", "source.py", "accelerate_fsdp2.py"}


def test_a_packaged_helper_with_a_mistake_is_the_one_that_runs(tmp_path, monkeypatch):
    job = mutate_subject.HELPERS / "job.py"
    subject = mutate_subject.Subject(tmp_path / "s.py", {}, {"job.py": job}, [])
    subject.path.write_text("from shardproof.subjects import job\nassert job.MARK == 7\n")
    mutant = mutate_subject.Mutant("job.py", 1, "constant", "", "MARK = 7\n")
    (tmp_path / "scratch").mkdir()
    path = mutate_subject.written(subject, tmp_path / "scratch", mutant)
    from shardproof import subjects

    monkeypatch.setitem(sys.modules, "shardproof.subjects.job", None)  # is put back
    monkeypatch.setattr(subjects, "job", None, raising=False)
    exec(compile(path.read_text(), str(path), "exec"), {})


def test_listed_ones_are_left_out_with_their_reason(tmp_path, monkeypatch):
    path = tmp_path / "s.py"
    path.write_text("def run(case, observe):\n    observe(1)\n    note(2)\n")
    listed = tmp_path / "listed.toml"
    note = '[[mutant]]\nfile = "s.py"\nchange = "note(2) -> pass"\nwhy = "a note"\n'
    other = '[[mutant]]\nsubject = "t.py"\nfile = "s.py"\nchange = "observe(1) -> pass"\nwhy = ""\n'
    listed.write_text(note + other)
    monkeypatch.setattr(mutate_subject, "EQUIVALENT", listed)
    subject = mutate_subject.Subject(path, {}, {}, [])
    mutants, known, total = mutate_subject.drawn(subject, 100, 0)
    assert [(mutant.change, why) for mutant, why in known] == [("note(2) -> pass", "a note")]
    assert total == len(mutants) + 1
    again = mutate_subject.drawn(subject, 100, 0)
    assert again == (mutants, known, total)


def test_a_run_of_a_case_is_one_too(tmp_path):
    path = tmp_path / "s.py"
    path.write_text(
        'RUNS = ("on_4 nightly: ep=2 experts_even.json a=b --steps=2", "on_2: 2 small")\n'
    )
    first, second = mutate_subject.runs_of(path, tmp_path)
    assert first == ["--mesh", "2", "--checkpoint", str(tmp_path / "small")]
    case = str(mutate_subject.CASES / "experts_even.json")
    assert second == ["--mesh", "ep=2", "--case", case, "--option", "a=b", "--steps=2"]


@pytest.mark.parametrize(
    ("runs", "came"),
    [
        (("pass", "compared less", "inconclusive"), "inconclusive"),
        (("inconclusive", "compared less"), "inconclusive"),
        (("compared less", "pass"), "compared less"),
        (("compared less", "named", "crashed"), "named"),
    ],
)
def test_of_several_runs_the_one_that_says_most_counts(runs, came, tmp_path, monkeypatch):
    path = tmp_path / "s.py"
    path.write_text("")
    verdicts = iter(runs)
    monkeypatch.setattr(mutate_subject, "ran", lambda *_: (next(verdicts), ""))
    subject = mutate_subject.Subject(path, {}, {}, [[] for _ in runs])
    assert mutate_subject.judged("", subject, tmp_path, None)[0] == came
