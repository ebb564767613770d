import os

import pytest
import torch
from safetensors.torch import save_file

from shardproof._programs import _load
from shardproof._programs._load import Child, answer_of, load, place_of, reason_of


@pytest.mark.parametrize(
    "other",
    [
        {"a": torch.tensor([1.0, 2.5])},
        {"a": torch.tensor([1.0, 2.0], dtype=torch.float64)},
        {"a": torch.tensor([[1.0, 2.0]])},
        {"b": torch.tensor([1.0, 2.0])},
        {"a": [1.0, 2.0]},
        {"a": torch.tensor([1.0, 2.0]), "b": 1},
        [torch.tensor([1.0, 2.0])],
    ],
)
def test_whatever_a_caller_can_see_changes_the_answer(other):
    assert answer_of({"a": torch.tensor([1.0, 2.0])}) != answer_of(other)


def test_order_of_keys_and_memory_do_not():
    tensor = torch.arange(6.0).reshape(2, 3)
    a = {"x": tensor, "y": -0.0}
    b = {"y": -0.0, "x": tensor.t().contiguous().t()}
    assert answer_of(a) == answer_of(b)
    assert answer_of({"y": 0.0, "x": tensor}) != answer_of(a)


def what(**fields):
    return {
        "kind": "safetensors",
        "path": "step",
        "files": ["m.safetensors"],
        "named_by": "",
    } | fields


def test_a_place_is_where_the_order_says_or_a_small_file(tmp_path):
    (tmp_path / "step").mkdir()
    (tmp_path / "step/m.safetensors").touch()
    plain = (str(tmp_path / "step"), ["m.safetensors"])
    assert place_of(str(tmp_path), what()) == plain
    (tmp_path / "latest").write_text("step\n")
    assert place_of(str(tmp_path), what(path="old", named_by="latest")) == plain
    (tmp_path / "latest").write_text("step/m.safetensors")
    assert place_of(str(tmp_path), what(files=["other"], named_by="latest")) == plain


def test_a_reason_is_one_line_without_the_directory():
    assert reason_of(ValueError("\n\n /tmp/x/a is bad\nmore"), "/tmp/x") == "ValueError:  a is bad"
    assert reason_of(ValueError(), "/tmp/x") == "ValueError"
    error = RuntimeError("no")
    error.failures = {0: (OSError("disk"), "stack")}
    assert reason_of(error, "/tmp/x") == "OSError: disk"


def test_of_files_with_an_index_those_are_read_that_it_names(tmp_path):
    save_file({"a": torch.ones(1), "x": torch.ones(1)}, tmp_path / "1.safetensors")
    (tmp_path / "m.index.json").write_text('{"weight_map": {"a": "1.safetensors"}}')
    loaded = _load.load_safetensors(str(tmp_path), ["1.safetensors", "m.index.json"])
    assert {name: list(state) for name, state in loaded.items()} == {"m.index.json": ["a"]}
    assert list(_load.load_safetensors(str(tmp_path), ["1.safetensors"])) == ["1.safetensors"]


def test_a_load_answers_and_one_that_fails_says_why(tmp_path):
    (tmp_path / "step").mkdir()
    save_file({"a": torch.ones(1)}, tmp_path / "step/m.safetensors")
    order = {"directory": str(tmp_path), "what": what()}
    assert load(order)["end"] == "ok"
    (tmp_path / "step/m.safetensors").write_bytes(b"")
    answer = load(order)
    assert answer["end"] == "error" and str(tmp_path) not in answer["line"]


@pytest.mark.parametrize(
    ("act", "end"),
    [
        (lambda: os.kill(os.getpid(), 9), "signal 9"),
        (lambda: os._exit(3), "exit 3"),
        (lambda: __import__("time").sleep(60), "no end within 0.5 s"),
    ],
)
def test_a_load_that_dies_or_hangs_is_told_as_that(monkeypatch, act, end):
    monkeypatch.setattr(_load, "load", lambda order: act())
    child = Child()
    assert child.ask({"deadline_s": 0.5 if "0.5" in end else 20}) == ({"end": end}, False)


def test_a_child_answers_more_than_once(monkeypatch):
    monkeypatch.setattr(_load, "load", lambda order: {"end": "ok", "line": order["n"] * 100000})
    child = Child()
    for letter in "ab":
        assert child.ask({"n": letter, "deadline_s": 20}) == (
            {"end": "ok", "line": letter * 100000}, True,
        )  # fmt: skip
    child.end()
