import gc
import json
import weakref

import numpy
import pytest
import torch
from torch import nn

from shardproof._holdings._holding import Holding
from shardproof._holdings._layout import Placement
from shardproof._observing._evidence import Writer
from shardproof._observing._observer import Observer, Place

PLACE = Place(0, 1, [{"name": "dp_replicate", "size": 1}, {"name": "dp_shard", "size": 1}], [0, 0])


@pytest.fixture
def watch(tmp_path):
    """(observe, records()): an Observer, and what it has written of one kind."""
    writer = Writer(str(tmp_path), 0)
    observe = Observer(writer, PLACE, "values", [])

    def records(kind):
        lines = (tmp_path / "rank_0.facts.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if record["record"] == kind]

    return observe, records


def test_a_stage_has_every_tensor_and_ends_with_their_number(watch):
    observe, records = watch
    observe("ready", model=nn.Linear(2, 3))
    assert [state["name"] for state in records("state")] == ["bias", "weight"]
    assert records("stage_end")[0]["tensors"] == 2
    assert len(records("rng")) == 1


def test_what_has_no_plain_memory_is_not_on_meta(watch):
    observe, records = watch
    model = nn.Linear(1, 1)
    model.register_buffer("sparse", torch.eye(3).to_sparse())
    model.register_buffer("later", torch.ones(2, device="meta"))
    observe("ready", model=model)
    states = {state["name"]: state for state in records("state")}
    assert states["sparse"]["device"] == "cpu" and "sparse" in states["sparse"]["unreadable"]
    assert states["later"]["device"] == "meta"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (dict(stage=""), "a name"),
        (dict(stage="ready"), "nothing to observe"),
        (dict(stage="ready", state_dict={}, optimizer=object()), "expected model= with"),
        (dict(stage="stepped", model=nn.Linear(1, 1)), "expected step="),
        (dict(stage="stepped", model=nn.Linear(1, 1), step=1.5), "a whole number"),
        (dict(stage="ready", model=nn.Linear(1, 1), content="maybe"), "expected"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused(watch, arguments, said):
    with pytest.raises(ValueError, match=said):
        watch[0](**arguments)


def test_a_step_may_be_a_number_of_numpy(watch):
    observe, records = watch
    observe("stepped", model=nn.Linear(1, 1), step=numpy.int64(1))
    assert records("stage")[0]["step"] == 1


def test_what_steps_note_on_a_parameter_is_none_of_what_it_is(watch):
    observe, records = watch
    model = nn.Linear(1, 1, bias=False)
    model.weight.kind = "before"
    observe("ready", model=model)
    for step in (1, 2, 3):
        model.weight.last_norm = 0.5 * step
        observe("stepped", model=model, step=step)
    (descriptor,) = records("tensor")
    assert descriptor["attributes"] == {"kind": "before"}


def test_small_tensors_go_along_byte_by_byte(watch):
    observe, records = watch
    model = nn.Module()
    model.register_buffer("x", torch.tensor([1, 2], dtype=torch.int16))
    observe("ready", model=model)
    assert records("state")[0]["bytes"] == [{"start": 0, "hex": "01000200"}]


def test_large_ones_do_not_but_for_what_was_asked_for(tmp_path):
    captures = [{"tensor": "x", "byte_start": 4, "byte_length": 2}]
    observe = Observer(Writer(str(tmp_path), 0), PLACE, "values", captures)
    model = nn.Module()
    model.register_buffer("x", torch.arange(5000, dtype=torch.int32))
    model.register_buffer("y", torch.arange(5000, dtype=torch.int32))
    observe("ready", model=model)
    lines = (tmp_path / "rank_0.facts.jsonl").read_text().splitlines()
    states = {r["name"]: r for r in map(json.loads, lines) if r["record"] == "state"}
    assert states["x"]["bytes"] == [{"start": 4, "hex": "0100"}]
    assert "bytes" not in states["y"]


def test_what_is_not_finite_is_counted_and_placed(watch):
    observe, records = watch
    model = nn.Module()
    model.register_buffer("x", torch.tensor([0, float("inf"), float("nan")]))
    observe("ready", model=model)
    (state,) = records("state")
    assert (state["nan"], state["inf"], state["first_nonfinite"]) == (1, 1, 1)


def test_content_is_what_the_caller_says_but_on_meta_there_is_none(watch):
    observe, records = watch
    observe("built", model=nn.Linear(1, 1, device="meta"), content="defined")
    observe(
        "loaded",
        model=nn.Linear(1, 1),
        content=lambda name: "undefined" if name == "bias" else "none",
    )
    assert [state["content"] for state in records("state")] == ["none", "none", "undefined", "none"]
    assert {state.get("digest") for state in records("state")[2:]} == {"0" * 32}


def test_an_object_keeps_its_identity_and_a_new_one_gets_another(watch):
    observe, records = watch
    model = nn.Linear(1, 1, bias=False)
    observe("built", model=model)
    observe("loaded", model=model)
    model.weight = nn.Parameter(torch.ones(1, 1))
    observe("ready", model=model)
    assert [tensor["identity"] for tensor in records("tensor")] == [0, 1]


def test_what_was_observed_is_not_kept_and_what_comes_in_its_place_is_another(watch):
    observe, records = watch
    gone = []
    for step in range(1, 4):
        model = nn.Linear(1, 1, bias=False)
        observe("stepped", model=model, step=step)
        gone.append(weakref.ref(model.weight))
        del model
        gc.collect()
    assert [ref() for ref in gone] == [None] * 3
    assert [tensor["identity"] for tensor in records("tensor")] == [0, 1, 2]


def test_an_optimizer_that_holds_a_parameter_that_was_replaced_is_told(watch):
    observe, records = watch
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    observe("built", model=model, optimizer=optimizer)
    model.weight = nn.Parameter(torch.ones(1, 2))
    observe("ready", model=model, optimizer=optimizer)
    first, second = records("optimizer")
    assert first["strangers"] == []
    assert first["groups"][0]["options"]["lr"] == "0.5"
    assert second["strangers"] == [{"group": 0, "index": 0, "was": "weight", "shape": [1, 2]}]
    assert second["groups"][0]["parameters"] == ["bias"]


def test_keys_are_on_record_without_a_model(watch):
    observe, records = watch
    observe("loaded", missing=["b", "a"])
    assert records("keys") == []
    observe("loaded", unexpected=[])
    assert records("keys") == [{"record": "keys", "missing": ["a", "b"], "unexpected": []}]


def test_a_mesh_that_is_not_the_job_s_is_on_record_with_its_names(watch):
    observe, records = watch
    held = Holding("w", "parameter", torch.float32, (4,), torch.zeros(4), [], torch.zeros(4))
    held.placements, held.coordinates = [Placement("shard", 0)], (0,)
    held.mesh_names, held.mesh_shape = ("efsdp",), (1,)
    assert observe._descriptor(held, {"w": 0})["mesh"] == 0
    assert records("mesh") == [
        {"record": "mesh", "id": 0, "axes": [{"name": "efsdp", "size": 1}], "coordinates": [0]}
    ]


def test_who_holds_a_tensor_is_on_record_once(watch):
    observe, records = watch
    observe("ready", model=nn.Linear(2, 3))
    assert records("groups") == [
        {"record": "groups", "id": 0, "whole": [0], "alike": [0], "members": [0]}
    ]
    assert [tensor["groups"] for tensor in records("tensor")] == [0, 0]


def test_of_a_list_of_chunks_nobody_said_who_holds_them(watch):
    observe, records = watch
    observe("ready", model=[nn.Linear(2, 3)])
    assert records("groups")[0]["stated"] is False


def test_statistics_of_own_batches_may_vary_once_there_are_any(watch):
    observe, records = watch
    model = nn.BatchNorm1d(2)
    observe("ready", model=model)
    model(torch.randn(4, 2))
    observe("stepped", model=model, step=1)
    of_mean = [each.get("varies") for each in records("tensor") if each["name"] == "running_mean"]
    assert of_mean == [None, "batches"]


@pytest.mark.parametrize(
    ("is_of_subject", "expected"), [(True, [None, "rewritten"]), (False, ["rewritten"])]
)
def test_a_buffer_that_is_rewritten_may_be_each_ranks_own(tmp_path, is_of_subject, expected):
    """Of a subject, what was written before there were steps was loaded."""
    writer = Writer(str(tmp_path), 0)
    observe = Observer(writer, PLACE, "values", [], is_of_subject=is_of_subject)
    model = nn.Module()
    model.register_buffer("scale", torch.ones(2))
    for _ in range(3):
        model.scale.copy_(torch.ones(2))
    observe("ready", model=model)
    observe("stepped", model=model, step=1)
    lines = (tmp_path / "rank_0.facts.jsonl").read_text().splitlines()
    tensors = [record for record in map(json.loads, lines) if record["record"] == "tensor"]
    assert [record.get("varies") for record in tensors] == expected


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("kept", torch.ones(2), persistent=False)
        self.register_buffer("replaced", torch.zeros(2), persistent=False)
        self.register_buffer("written", torch.zeros(2), persistent=False)
        self.register_buffer("made", None, persistent=False)
        self.register_buffer("count", torch.tensor(0))

    def forward(self, x):
        self.replaced = x.detach().clone()
        self.written.copy_(x)
        self.made = x.detach() * 2
        self.count += 1
        return x * self.weight


def _varying(folder):
    lines = (folder / "rank_0.facts.jsonl").read_text().splitlines()
    tensors = [record for record in map(json.loads, lines) if record["record"] == "tensor"]
    return [each["name"] for each in tensors if each.get("varies") == "rewritten"]


def test_what_a_step_puts_into_a_buffer_may_be_each_ranks_own(tmp_path):
    observe = Observer(Writer(str(tmp_path), 0), PLACE, "values", [], is_of_subject=True)
    model = Cached()
    observe("ready", model=model)
    model(torch.ones(2))
    observe("stepped", model=model, step=1)
    assert sorted(_varying(tmp_path)) == ["made", "replaced", "written"]


def test_a_buffer_that_the_first_step_makes_may_be_the_models_only_one(tmp_path):
    observe = Observer(Writer(str(tmp_path), 0), PLACE, "values", [], is_of_subject=True)
    model = nn.Linear(1, 1)
    model.register_buffer("made", None, persistent=False)
    observe("ready", model=model)
    model.made = torch.ones(2)
    observe("stepped", model=model, step=1)
    assert _varying(tmp_path) == ["made"]


def test_an_argument_that_is_not_known_is_refused(watch):
    with pytest.raises(TypeError, match="unknown argument 'grups'"):
        watch[0]("ready", model=nn.Linear(1, 1), grups={})


def test_those_who_wait_are_told_before_and_after(watch):
    observe, records = watch
    told = []
    observe.on_stage(lambda stage: told.append(("begins", stage, len(records("stage")))))
    observe.on_observed(lambda stage, step: told.append((stage, step, len(records("stage_end")))))
    observe("stepped", model=nn.Linear(1, 1), step=2)
    assert told == [("begins", "stepped", 0), ("stepped", 2, 1)]
