"""An attached job: its options, where its evidence lies, and what is changed as it is imported."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from shardproof import run
from shardproof._attached import _attached_evidence, _attached_options, _saved
from shardproof._observing import _imports
from shardproof._observing._evidence import on_one_axis


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("ready", (("ready",), 0)), ("saved,every=50", (("saved",), 50)), ("", ((), 0))],
)
def test_when_to_observe(text, parsed):
    assert _attached_options.parse_at(text) == parsed


@pytest.mark.parametrize("text", ["steps", "every=0", "every=x", "every"])
def test_a_moment_that_there_is_not_is_named(text):
    with pytest.raises(ValueError, match="--at"):
        _attached_options.parse_at(text)


def test_the_words_of_a_job_are_left_to_it():
    fields, module, words = run.parse(["--strict", "--who", "--at", "ready", "job.py", "--at", "x"])
    assert (fields, module, words) == (
        {"strict": True, "who": True, "stages": ("ready",), "every": 0}, None,
        ["job.py", "--at", "x"],
    )  # fmt: skip
    assert run.parse(["-m", "job", "-x"])[1:] == ("job", ["-x"])
    for wrong in ([], ["--strict"], ["--what", "job.py"], ["--at"]):
        with pytest.raises(ValueError):
            run.parse(wrong)


def test_options_travel_by_the_environment(monkeypatch):
    monkeypatch.setenv(_attached_options.VARIABLE, "")
    assert _attached_options.from_environment() is None
    options = _attached_options.Options(("saved",), 7, "/folder", "launch", True)
    options.to_environment()
    assert _attached_options.from_environment() == options
    monkeypatch.setenv(_attached_options.VARIABLE, "{")
    with pytest.raises(ValueError, match=_attached_options.VARIABLE):
        _attached_options.from_environment()


def test_a_rank_that_is_gone_runs_no_more(tmp_path):
    records = _attached_evidence.Records(tmp_path, 0, 2, "launch")
    assert _attached_evidence.running(tmp_path) == [0, 1]
    note = json.loads((tmp_path / "ranks/0.began").read_text())
    (tmp_path / "ranks/1.began").write_text(json.dumps({**note, "pid": 2**22 + 1}))
    assert _attached_evidence.running(tmp_path) == [0]
    records.end(on_one_axis(0, 2), 0)
    assert _attached_evidence.running(tmp_path) == []
    assert _attached_evidence.launches_of(tmp_path) == {"launch"}


def test_ranks_come_to_one_model_by_its_kind_whatever_they_made_before(tmp_path):
    records = [_attached_evidence.Records(tmp_path, rank, 2, "") for rank in (0, 1)]
    for kind in ("found Reward", ""):
        records[0].add_model(on_one_axis(0, 2), kind)
    for kind in ("", "found Reward", ""):
        records[1].add_model(on_one_axis(1, 2), kind)
    models = [(tmp_path / "models" / number).read_text() for number in "012"]
    assert models == ["found Reward 0", " 0", " 1"]
    evidence = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("rank_*.facts.jsonl"))
    assert evidence == [
        "model1/values/rank_0.facts.jsonl", "model1/values/rank_1.facts.jsonl",
        "model2/values/rank_1.facts.jsonl", "values/rank_0.facts.jsonl",
        "values/rank_1.facts.jsonl",
    ]  # fmt: skip


def test_a_rank_without_a_part_in_a_model_says_so_when_all_have_ended(tmp_path):
    records = [_attached_evidence.Records(tmp_path, rank, 2, "") for rank in (0, 1)]
    for _ in range(2):
        records[0].add_model(on_one_axis(0, 2))
    for rank, each in enumerate(records):
        each.end(on_one_axis(rank, 2), 0)
    _attached_evidence.fill_absent(tmp_path)
    assert len(_attached_evidence.models_in(tmp_path)) == 2
    lines = (tmp_path / "model1/values/rank_1.facts.jsonl").read_text().splitlines()
    assert [json.loads(line)["record"] for line in lines] == ["rank", "end"]


@pytest.mark.parametrize(
    ("how", "last"), [("left", "end"), ("left and joined again", "rank"), ("", "rank")]
)
def test_evidence_of_a_rank_that_left_in_order_and_was_killed_is_complete(tmp_path, how, last):
    records = _attached_evidence.Records(tmp_path, 0, 1, "")
    records.add_model(on_one_axis(0, 1))
    if how:
        records.leave()
    if how == "left and joined again":
        records.join_again()
    for _ in range(2):  # whoever reports
        _attached_evidence.fill_absent(tmp_path)
    lines = (tmp_path / "values/rank_0.facts.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert found[-1]["record"] == last
    assert [each["lines"] for each in found if each["record"] == "end"] in ([], [len(lines)])


def test_a_module_is_changed_when_it_is_imported_and_not_before(tmp_path, monkeypatch):
    (tmp_path / "imported_later.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    _imports.when_imported("imported_later", lambda module: seen.append(module.f()))
    assert seen == [] and "imported_later" not in sys.modules
    import imported_later

    assert seen == [1]
    assert imported_later.__loader__ is imported_later.__spec__.loader
    assert type(imported_later.__loader__).__name__ == "SourceFileLoader"
    _imports.when_imported("imported_later", lambda module: seen.append(2))
    assert seen == [1, 2]


@pytest.mark.parametrize("options", ["", "{", '{"stages": ["ready"]}'])
def test_a_python_that_the_job_starts_runs_what_it_would_have_run(tmp_path, options):
    (tmp_path / "sitecustomize.py").write_text("print('the other', __name__, __file__)")
    site = Path(_saved.__file__).parents[1] / "_site"
    environment = {"PYTHONPATH": f"{site}:{tmp_path}", _attached_options.VARIABLE: options}
    words = [sys.executable, "-c", "import sys; print('torch' in sys.modules); sys.exit(3)"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stdout == f"the other sitecustomize {tmp_path}/sitecustomize.py\nFalse\n"
    assert done.stderr.count("shardproof: not attached") == (1 if options == "{" else 0)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python has no -P")
@pytest.mark.parametrize("words", [["job.py"], ["-m", "job"]])
def test_python_that_puts_no_folder_first_puts_none_and_that_nothing_was_seen_is_told(
    tmp_path, words
):
    (tmp_path / "job.py").write_text("import sys; print(sys.path)")
    package = Path(_saved.__file__).parents[2]
    outputs = []
    for attached in ([], ["-m", "shardproof.run"], ["-m", "shardproof.run", "--strict"]):
        done = subprocess.run(
            [sys.executable, "-P", *attached, *words], cwd=tmp_path, capture_output=True, text=True,
            env={"PYTHONPATH": f"{package}:{tmp_path}"},
        )  # fmt: skip
        assert done.returncode == (1 if "--strict" in attached else 0), done
        assert done.stderr.count("no model was seen") == (1 if attached else 0), done
        outputs.append(done.stdout)
    assert outputs[0] and len(set(outputs)) == 1
