import json
import subprocess
import sys
from pathlib import Path

import pytest

import shardproof
from shardproof._observing._script import _place_of

JOB = """
import sys, torch, shardproof
model = torch.nn.Linear(2, 2)
shardproof.observe("ready", model=model)
if len(sys.argv) > 1:
    raise RuntimeError("lost my way")
"""


def job(tmp_path, *words, script=JOB):
    (tmp_path / "job.py").write_text(script)
    environment = {"PYTHONPATH": str(Path(shardproof.__file__).parents[1]), "PATH": ""}
    done = subprocess.run([sys.executable, "job.py", *words], cwd=tmp_path, env=environment)
    lines = (tmp_path / "shardproof-evidence/values/rank_0.facts.jsonl").read_text().splitlines()
    return done.returncode, [json.loads(line) for line in lines]


def test_without_a_mesh_all_ranks_are_on_one_axis():
    place = _place_of(None, 3, 4)
    assert (place.axes, place.coordinates) == ([{"name": "world", "size": 4}], [3])


def test_a_script_leaves_evidence_that_ends(tmp_path):
    code, records = job(tmp_path)
    assert code == 0
    assert [r["record"] for r in records[:2]] == ["rank", "stage"]
    assert records[-1] == {"record": "end", "lines": len(records)}
    run = json.loads((tmp_path / "shardproof-evidence/run.json").read_text())
    assert run["case"]["mesh"] == [{"name": "world", "size": 1}]
    assert run["case"]["model"] == {"checkpoint": "no checkpoint"}


def test_what_ends_it_is_on_record_with_its_stage(tmp_path):
    code, records = job(tmp_path, "fail")
    assert code == 1
    (error,) = [r for r in records if r["record"] == "error"]
    assert error["stage"] == "ready" and "lost my way" in error["message"]


def test_averages_that_nothing_would_judge_are_refused():
    with pytest.raises(ValueError, match="averages"):
        shardproof.observe("ema", averages={}, step=1)


FORKS = """
import os, sys, torch, shardproof
model = torch.nn.Linear(2, 2)
shardproof.observe("ready", model=model)
if not (child := os.fork()):
    if len(sys.argv) > 1:
        raise RuntimeError("of the child")
    sys.exit(0)
os.waitpid(child, 0)
shardproof.observe("stepped", model=model, step=1)
"""


@pytest.mark.parametrize("words", [(), ("fail",)])
def test_a_fork_that_ends_leaves_the_evidence_to_its_parent(tmp_path, words):
    code, records = job(tmp_path, *words, script=FORKS)
    assert code == 0 and not any(each["record"] == "error" for each in records)
    assert [each["name"] for each in records if each["record"] == "stage"] == ["ready", "stepped"]
    (end,) = [each for each in records if each["record"] == "end"]
    assert records[-1] == end and end["lines"] == len(records)
