import json

import pytest

from shardproof._observing._evidence import LineFile, Writer, coordinates_of, root_cause

W = {"name": "w", "kind": "parameter"}


def facts(folder, rank=0):
    return [json.loads(line) for line in (folder / f"rank_{rank}.facts.jsonl").open()]


@pytest.mark.parametrize(
    ("rank", "sizes", "expected"),
    [(0, [2, 3], [0, 0]), (5, [2, 3], [1, 2]), (3, [2, 3], [1, 0]), (7, [2, 2, 2], [1, 1, 1])],
)
def test_coordinates_are_row_major(rank, sizes, expected):
    assert coordinates_of(rank, sizes) == expected


def test_a_state_that_did_not_change_is_not_written_again(tmp_path):
    writer = Writer(tmp_path, 0)
    for step in (1, 2, 3):
        writer.begin_stage("stepped", step)
        writer.state("w", W, {"digest": "a" if step < 3 else "b"})
        writer.end_stage()
    kinds = [record["record"] for record in facts(tmp_path)]
    assert kinds == [
        "stage", "tensor", "state", "stage_end",
        "stage", "stage_end",
        "stage", "state", "stage_end",
    ]  # fmt: skip


def test_what_is_gone_is_said_once_and_states_are_kept_apart_by_what_they_are_of(tmp_path):
    writer = Writer(tmp_path, 0)
    writer.begin_stage("ready", 0)
    writer.state("a", W, {"digest": "1"})
    writer.state("b", W, {"digest": "1"})
    writer.end_stage()
    writer.begin_stage("ready", 0, "optimizer")
    writer.end_stage()
    for _ in range(2):
        writer.begin_stage("stepped", 1)
        writer.state("a", W, {"digest": "1"})
        writer.end_stage()
    gone = [record["name"] for record in facts(tmp_path) if record["record"] == "gone"]
    assert gone == ["b"]
    ends = [record["tensors"] for record in facts(tmp_path) if record["record"] == "stage_end"]
    assert ends == [2, 0, 1, 1]
    assert [r.get("of") for r in facts(tmp_path) if r["record"] == "stage"] == [
        None, "optimizer", None, None,
    ]  # fmt: skip


def test_the_end_counts_all_lines_its_own_too(tmp_path):
    writer = Writer(tmp_path, 2)
    writer.keys({"b", "a"}, [])
    writer.error("ready", ValueError("no"))
    assert not writer.ended
    writer.end()
    assert writer.ended
    found = facts(tmp_path, 2)
    assert found[-1] == {"record": "end", "lines": 3} and len(found) == 3
    assert found[0]["missing"] == ["a", "b"]
    assert (found[1]["type"], found[1]["message"]) == ("ValueError", "ValueError: no")


def test_each_line_is_written_whole_and_numbers_are_json(tmp_path):
    file = LineFile(tmp_path / "x")
    file.write({"a": "ä\n"})
    assert (tmp_path / "x").read_text() == '{"a":"ä\\n"}\n'
    with pytest.raises(ValueError, match="JSON"):
        file.write({"a": float("nan")})
    assert file.lines == 1


def caught(error):
    try:
        raise error
    except type(error) as raised:
        return raised


def test_a_cause_is_one_line_with_its_place():
    line = root_cause(caught(ValueError("a\n   b")))
    assert line.startswith("ValueError: a b (_evidence_test.py:")
    assert root_cause(ValueError("a")) == "ValueError: a"


def test_a_long_cause_keeps_its_beginning_and_its_end():
    line = root_cause(ValueError("b" * 250 + "x" * 1000 + "e" * 400))
    assert line == "ValueError: " + "b" * 200 + " ... " + "e" * 400


def test_the_errors_of_all_ranks_are_told():
    error = RuntimeError("many words")
    error.failures = {1: (OSError("disk full"), "stack"), 3: KeyError("w")}
    assert root_cause(error) == "RuntimeError: rank 1: OSError: disk full; rank 3: KeyError: 'w'"
