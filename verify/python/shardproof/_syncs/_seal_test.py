"""A seal of a live model: what is in it, and a model against one; of one process alone."""

import copy
import dataclasses
import json

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata

from shardproof._checking._check import Mismatch, check
from shardproof._digests._digest import digest_runs, hex_of
from shardproof._holdings._groups import Statement
from shardproof._holdings._layout import local_runs
from shardproof._judging import _own, _whole
from shardproof._judging._whole import Part
from shardproof._syncs import _state_dict
from shardproof._syncs._seal import seal
from shardproof._syncs._sealing_writer import SealingWriter
from shardproof.engines import FP8_TENSOR


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2).to(torch.bfloat16), nn.BatchNorm1d(2))


def test_a_model_that_was_sealed_before_is_described_anew_only_if_it_is_another(monkeypatch):
    live, reads, read = model(), [], _own.tensors_of
    monkeypatch.setattr(_own, "tensors_of", lambda *each: reads.append(1) or read(*each))
    of_model = {}

    def sealed(version, expected, **options):
        before = len(reads)
        found = seal(live, version=version, **options)
        assert len(reads) - before == expected
        alone = seal(copy.deepcopy(live), version=version, **options)
        assert (found.seal, found.digest) == (alone.seal, alone.digest)
        assert dict(found.tensors) == dict(alone.tensors)
        of_model[version] = found.to_json()
        return found

    sealed(1, 1)
    for version in (2, 3):
        with torch.no_grad():
            live[0].weight += 1
            live[2].running_mean -= 1
        found = sealed(version, 0)
    assert len({*of_model.values()}) == 3
    found.seal["tensors"].clear()  # which is the caller's
    found.tensors.clear()
    sealed(4, 0)
    sealed(4, 1, prefix="model.")
    of_first = {"0.*": torch.bfloat16}
    sealed(5, 1, cast=of_first)
    for version in (6, 7):
        with torch.no_grad():
            live[0].weight += 1  # what is cast
            live[1].weight -= 1  # what is not
        sealed(version, 0, cast=of_first)
    of_first["0.bias"] = of_first.pop("0.*")  # changed in place
    sealed(7, 1, cast=of_first)
    quantised = {"[01].weight": FP8_TENSOR}
    sealed(7, 1, cast=quantised)
    sealed(7, 1, cast=quantised)  # what is quantised is described anew each time
    live[1] = nn.Linear(2, 2)
    sealed(8, 1)
    sealed(9, 0)


def test_blocks_of_what_is_cast_are_those_of_its_values_after_the_cast():
    live, blocks = nn.Linear(1 << 10, 5 << 10, bias=False), []
    for _ in range(2):
        with torch.no_grad():
            live.weight[-1, -1] += 1
        found = seal(live, cast=torch.bfloat16)
        alone = seal(copy.deepcopy(live).bfloat16())
        assert found.digest == alone.digest
        blocks.append(found.blocks["weight"].tolist())
    (first, second, last), (*same, changed) = blocks
    assert same == [first, second] and changed != last


def test_a_seal_has_the_digests_of_the_whole_tensors(tmp_path):
    live = model()
    count = seal(live, to=tmp_path / "seal.json", prefix="model.")
    document = json.loads((tmp_path / "seal.json").read_text())
    assert (document["schema"], document["values"], document["files"]) == (2, {}, {})
    assert len(count) == len(document["tensors"]) == len(live.state_dict())
    for name, value in live.state_dict().items():
        entry = document["tensors"]["model." + name]
        assert entry["shape"] == list(value.shape)
        assert entry["digest"] == hex_of(digest_runs(value, local_runs(value.shape)).digest)
    assert document["tensors"]["model.1.weight"]["dtype"] == "BF16"


def test_a_save_by_dcp_is_sealed_as_it_is_written(tmp_path):
    live = model()
    state = {"model": live.state_dict(), "optim": {"lr": 0.1}, "step": 7}
    writer = SealingWriter(dcp.FileSystemWriter(tmp_path / "it"), tmp_path / "it.seal.json")
    dcp.save(state, storage_writer=writer)
    document = json.loads((tmp_path / "it.seal.json").read_text())
    assert document == seal(state).seal
    assert "model.1.weight" in document["tensors"] and "optim.lr" in document["values"]
    loaded = {"model": model().state_dict(), "optim": {"lr": 0.0}, "step": 0}
    dcp.load(loaded, checkpoint_id=tmp_path / "it")
    assert seal(loaded).seal == document
    with pytest.raises(CheckpointException, match="replace=True"):
        dcp.save(state, storage_writer=writer)


def test_without_collectives_one_rank_writes_the_seal(tmp_path):
    """Each rank ends its part of such a save."""
    state = {"w": torch.ones(2)}
    for is_coordinator in (False, True):
        writer = SealingWriter(dcp.FileSystemWriter(tmp_path / "it"), tmp_path / "seal.json")
        writer.set_up_storage_writer(is_coordinator)
        (tmp_path / "it").mkdir(exist_ok=True)
        writer._manifest = seal(state)
        writer.finish(Metadata({}), [])
        assert (tmp_path / "seal.json").exists() == is_coordinator


def test_a_model_is_held_against_its_seal(tmp_path):
    live = model()
    optimizer = torch.optim.SGD(live.parameters(), momentum=0.9)
    for parameter in live.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    seal(live, optimizer, to=tmp_path / "seal.json")
    outcome = check(live, optimizer=optimizer, against=tmp_path / "seal.json", strict=True)
    assert outcome.inconclusive == () and "(seal)" in outcome.checkpoint
    with torch.no_grad():
        live[0].bias[1] += 1
    with pytest.raises(Mismatch) as raised:
        check(live, optimizer=optimizer, against=tmp_path / "seal.json")
    (finding,) = raised.value.findings
    assert (finding.kind, finding.tensor) == ("disk", "0.bias") and "in the seal" in finding.what


def test_of_a_state_dict_names_and_values_are_sealed_too(tmp_path):
    state = {"model": {"w": torch.ones(2)}, "groups": [{"lr": 0.5, "betas": (0.9, 1e-08)}],
             "plain": [1, "it's"], "none": {}}  # fmt: skip
    assert len(seal(state, to=tmp_path / "seal.json")) == 1
    document = json.loads((tmp_path / "seal.json").read_text())
    assert document["tensors"].keys() == {"model.w"}
    assert document["values"].keys() == {"groups.0.lr", "groups.0.betas", "plain"}
    texts = _state_dict.read(state, Statement())[1]
    assert texts["groups.0.betas"] == "(0.9, 1e-08)" and texts["plain"] == "[1, 'it\\'s']"
    with pytest.raises(RuntimeError, match="x: a value of the type object"):
        seal({"x": object()}, to=tmp_path / "other.json")
    with pytest.raises(RuntimeError, match="an optimizer was passed with a state dict"):
        seal({}, torch.optim.SGD([torch.ones(1)]), to=tmp_path / "other.json")


def test_a_file_that_is_there_is_not_replaced_unasked(tmp_path):
    seal(model(), to=tmp_path / "seal.json")
    before = (tmp_path / "seal.json").read_bytes()
    with pytest.raises(RuntimeError, match="replace=True"):
        seal(nn.Linear(1, 1), to=tmp_path / "seal.json")
    assert (tmp_path / "seal.json").read_bytes() == before
    assert len(seal(nn.Linear(1, 1), to=tmp_path / "seal.json", replace=True)) == 2
    with pytest.raises(RuntimeError, match="cannot write"):
        seal(nn.Linear(1, 1), to=tmp_path / "no" / "seal.json")


def test_what_cannot_be_read_is_not_sealed(tmp_path):
    with pytest.raises(RuntimeError, match="bias: it is on meta"):
        seal(nn.Linear(1, 1, device="meta"), to=tmp_path / "seal.json")
    with pytest.raises(RuntimeError, match="no tensor to seal"):
        seal(nn.ReLU(), to=tmp_path / "seal.json")
    assert not (tmp_path / "seal.json").exists()


def test_another_file_is_no_seal(tmp_path):
    (tmp_path / "seal.json").write_text('{"schema": 1}')
    with pytest.raises(RuntimeError, match="expected a seal of schema 2"):
        check(model(), against=tmp_path / "seal.json")


def part(whole, digest=(1, 1), elements=range(4)):
    from shardproof._digests import _digest
    from shardproof._holdings import _layout

    runs = _layout.flat_runs(elements.start, elements.stop)
    return Part("torch.float32", (4,), whole, _digest.coverage(runs, 4), digest)


def test_parts_of_ranks_add_up_and_replicas_must_be_equal():
    halves = [{"w": part((0, 1), (1, 2), range(2))}, {"w": part((0, 1), (3, 4), range(2, 4))}]
    assert _whole.wholes(halves)["w"].digest == (4, 6)
    replica = {"w": part((2,), (4, 6))}
    assert _whole.wholes([*halves, replica])["w"].digest == (4, 6)
    other = {"w": part((2,), (4, 7))}
    assert "hold different tensors" in _whole.wholes([*halves, other])["w"]
    assert "do not form the whole tensor" in _whole.wholes([halves[0], halves[0]])["w"]
    unlike = {"w": dataclasses.replace(halves[1]["w"], dtype="torch.int32")}
    assert "do not agree" in _whole.wholes([halves[0], unlike])["w"]
