"""The rules over syncs, and the logs that they read. No ranks: logs are made up."""

import json
import subprocess

import pytest

from shardproof import _program, syncs
from shardproof._syncs import _log


def sent(version, manifest=None, job="t:1", **said):
    manifest = manifest or f"m{version}"
    return {"syncs": 1, "side": "trainer", "job": job, "at": 0.0, "version": version,
            "manifest": manifest, "weights": manifest, "steps": version, "rate": 1e-3,
            "rounds": False, **said}  # fmt: skip


def given(version, *wrong, manifest=None, job="e:1", **said):
    """wrong: (tensor, ranks, what)."""
    found = [dict(zip(("tensor", "ranks", "what"), each)) for each in wrong]
    return {"syncs": 1, "side": "engine", "job": job, "at": 0.0, "version": version,
            "manifest": manifest or f"m{version}", "looked": True, "looked_at": 3, "held": 3,
            "compared": 9, "left": [], "count": len(wrong), "found": found, "refused": None,
            **said}  # fmt: skip


def judged(tmp_path, *logs):
    """logs: the trainer's, then those of engines."""
    for number, lines in enumerate(logs):
        name = f"engine-{number}" if number else "trainer"
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{name}{_log.SUFFIX}").write_text(text)
    result = syncs.judge(syncs.read(tmp_path))
    return {each["id"]: each for each in result["rules"]}


def failed(rules):
    return {key: each["findings"] for key, each in rules.items() if each["verdict"] == "fail"}


def unsure(rules):
    return [key for key, each in rules.items() if each["verdict"] == "inconclusive"]


WRONG = ("w", [1], "it is still that of version 1")
FOUR = [sent(version) for version in (1, 2, 3, 4)]


@pytest.mark.parametrize("logs", [
    (FOUR, [given(v) for v in (1, 2, 3, 4)], [given(v) for v in (1, 2, 3, 4)]),
    # A load that is repeated, a check of the same again, and one that `every` passed over.
    (FOUR, [given(1), given(1), given(2, WRONG), given(2), given(3, looked=False), given(4)]),
    # An engine that was started later, one that was away, and a trainer that went back to a save.
    (FOUR, [given(v) for v in (3, 4)]),
    (FOUR, [given(1), given(4, job="e:2")]),
    ([*FOUR[:3], *(sent(v, f"n{v}", "t:2") for v in (2, 3))],
     [given(1), given(2), given(3), *(given(v, manifest=f"n{v}", job="e:2") for v in (2, 3))]),
    # Warm-up from a rate of 0; no step between two versions; a rate that has faded.
    ([sent(1, rate=0.0), sent(2, weights="m1")], [given(1), given(2)]),
    ([sent(1), sent(2, weights="m1", steps=1)], [given(1), given(2)]),
    ([sent(1, rate=1e-20), sent(2, weights="m1")], [given(1), given(2)]),
    # The trainer's log begins later than the engine's.
    (FOUR[2:], [given(v) for v in (1, 2, 3, 4)]),
])  # fmt: skip
def test_sound_syncs_have_no_finding(logs, tmp_path):
    rules = judged(tmp_path, *logs)
    assert failed(rules) == {} and unsure(rules) == [], rules


def test_logs_that_are_read_while_they_are_written_are_not_called_wrong(tmp_path):
    rules = judged(tmp_path, FOUR, [given(v) for v in (1, 2, 3)], [given(v) for v in (1, 2)])
    assert failed(rules) == {} and unsure(rules) == ["sync.received", "sync.one_version"]


@pytest.mark.parametrize("rule, said, logs", [
    ("received", "engine-1 was not given version 2, but", (FOUR, [given(1), given(3), given(4)])),
    ("received", "no engine was given version 3 or a newer one", (FOUR, [given(1), given(2)])),
    ("received", "a version 2 that is not the trainer's",
     (FOUR[:2], [given(1), given(2, manifest="x")])),
    ("received", "a version 2 that is not the trainer's",
     (FOUR[:2], [given(1), given(2), given(2, manifest="x", job="e:2")])),
    ("received", "version 3, which the trainer did not send",
     ([FOUR[0], FOUR[1], FOUR[3]], [given(v) for v in (1, 2, 3, 4)])),
    ("loaded", "w on rank 1 of engine-1 at version 2: it is still that of version 1",
     (FOUR[:2], [given(1), given(2, WRONG)])),
    ("loaded", "at version 2: it cannot be read",
     (FOUR[:2], [given(1), given(2, refused="it cannot be read")])),
    ("unchanged", "changed after it was loaded: w on rank 1 of engine-1 at version 1",
     (FOUR[:2], [given(1), given(1, WRONG), given(2)])),
    ("versions_rise", "trainer: version 1 after version 2",
     ([sent(2), sent(1)], [given(1), given(2)])),
    ("versions_rise", "engine-1: version 1 after version 2",
     (FOUR[:2], [given(1), given(2), given(1)])),
    ("versions_rise", "trainer: version 2 twice, with other weights",
     ([sent(1), sent(2), sent(2, "x")], [given(1), given(2)])),
    ("one_version", "engine-2 is at version 2, engine-1 at 4",
     (FOUR, [given(v) for v in (1, 2, 3, 4)], [given(v) for v in (1, 2)])),
    ("one_version", "engine-1 and engine-2 were given different weights as version 1",
     ([sent(1), sent(1, "x", "t:2")], [given(1)], [given(1, manifest="x")])),
    ("weights_moved", "version 2 has the weights of version 1, and the optimizer took 1 step ",
     ([sent(1), sent(2, weights="m1")], [given(1), given(2)])),
])  # fmt: skip
def test_what_does_not_hold_is_the_finding_of_one_rule(rule, said, logs, tmp_path):
    found = failed(judged(tmp_path, *logs))
    assert list(found) == [f"sync.{rule}"], found
    assert len(found[f"sync.{rule}"]) == 1 and said in found[f"sync.{rule}"][0], found


def test_weights_that_rounding_may_keep_are_not_called_stale(tmp_path):
    lines = [sent(1, rounds=True), sent(2, weights="m1", rounds=True)]
    rules = judged(tmp_path, lines, [given(1), given(2)])
    assert failed(rules) == {} and unsure(rules) == ["sync.weights_moved"]


def test_a_side_that_is_missing_is_no_pass(tmp_path):
    assert "sync.received" in unsure(judged(tmp_path, [], [given(1)]))
    assert "sync.loaded" in unsure(judged(tmp_path, [sent(1)], []))


def test_the_last_line_may_be_cut_short(tmp_path):
    path = tmp_path / f"engine{_log.SUFFIX}"
    path.write_text(json.dumps(given(1)) + '\n{"syncs":1,"si')
    assert [line["version"] for line in syncs.read(path).engines[0].lines] == [1]


@pytest.mark.parametrize("text, said", [
    ("{}\n", "line 1: this line is not a record"), ("x\n", "line 1"),
    ("[]\n", "line 1: this line is not a record"),
    ('{"syncs": 2}\n', "schema 2, expected 1"), ("", "its logs record no sync"),
    (json.dumps(given("1")) + "\n", "version is '1'"),
    (json.dumps(given(1)) + "\n" + json.dumps(sent(1)) + "\n", "of a trainer and of an engine"),
    (json.dumps({**given(1), "found": [3]}) + "\n", "line 1: this line is not a record"),
    (json.dumps({**given(1), "left": [{}]}) + "\n", "line 1: this line is not a record"),
])  # fmt: skip
def test_a_log_that_is_none_is_one_line(text, said, tmp_path, capsys):
    (tmp_path / f"a{_log.SUFFIX}").write_text(text)
    assert syncs.main([str(tmp_path)]) == 2
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1


def test_the_report_is_text_and_json(tmp_path, capsys):
    judged(tmp_path, FOUR[:2], [given(1), given(2, WRONG, left=["b (it is not known)"])])
    assert syncs.main([str(tmp_path), "--json", str(tmp_path / "r.json")]) == 1
    said = capsys.readouterr().out
    assert said.startswith("shardproof: fail, 1 finding: versions sent 2, engines 1, checks 2")
    assert "FAIL sync.loaded: w on rank 1 of engine-1 at version 2" in said
    assert "not compared: b (it is not known)" in said
    assert json.loads((tmp_path / "r.json").read_text())["verdict"] == "fail"


@pytest.mark.skipif(_program.find() is None, reason="no command `shardproof`")
def test_the_command_reports_logs_as_it_does_evidence(tmp_path):
    judged(tmp_path, FOUR[:2], [given(1), given(2, WRONG)])
    for path in (tmp_path, tmp_path / f"engine-1{_log.SUFFIX}"):
        done = subprocess.run([_program.find(), "report", path], capture_output=True, text=True)
        assert done.returncode == 1 and "FAIL sync.loaded: w on rank 1" in done.stdout, done
