"""A manifest as it travels, and a model against one; of one process alone."""

import base64
import hashlib
import json
import zlib

import pytest
import torch
from torch import nn

from shardproof import check, seal
from shardproof._checking._check import Mismatch
from shardproof._stored._manifest import Manifest


def model(step=0):
    torch.manual_seed(step)
    return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2), nn.BatchNorm1d(2))


def test_ten_thousand_tensors_are_some_hundred_kilobytes():
    def entry(number):
        digest = hashlib.blake2b(str(number).encode(), digest_size=16).hexdigest()
        return {"dtype": "BF16", "shape": [768, 2048 + number % 3], "digest": digest}

    names = (f"layers.{n // 200}.mlp.experts.{n % 200}.gate.weight" for n in range(10_000))
    tensors = {name: entry(number) for number, name in enumerate(names)}
    document = seal(model()).seal
    text = Manifest({**document, "tensors": tensors}, 1).to_json()
    assert len(text) < 400_000 and Manifest.from_json(text).seal["tensors"] == tensors


def findings_of(live, manifest, **options):
    with pytest.raises(Mismatch) as raised:
        check(live, against=manifest, **options)
    return [(each.tensor, each.what) for each in raised.value.findings]


def test_it_is_the_same_after_it_has_travelled_and_as_the_file():
    sent = seal(model(), version=3)
    came = Manifest.from_json(sent.to_json())
    assert (came.version, came.digest, came.seal) == (3, sent.digest, sent.seal)
    assert came == sent and len({came, sent}) == 1
    assert came not in (seal(model(1), version=3), seal(model(), version=4), sent.digest)
    assert len(came) == len(model().state_dict())
    assert check(model(), against=came, strict=True).checkpoint.startswith(
        "a manifest of version 3"
    )


def test_the_seal_of_a_file_is_that_of_the_manifest(tmp_path):
    manifest = seal(model(), to=tmp_path / "seal.json")
    assert json.loads((tmp_path / "seal.json").read_text()) == manifest.seal
    (tmp_path / "manifest.json").write_text(manifest.to_json())
    assert check(model(), against=tmp_path / "manifest.json").comparisons


def test_a_cast_is_that_of_what_is_sent():
    live = model()
    manifest = seal(live, cast={"*.weight": torch.bfloat16})
    assert live[0].weight.dtype == torch.float32
    received = model()
    for each in received[:2]:
        each.weight = nn.Parameter(each.weight.detach().to(torch.bfloat16))
    received[2].weight = nn.Parameter(received[2].weight.detach().to(torch.bfloat16))
    assert check(received, against=manifest, strict=True).comparisons
    twice = received[0].weight.detach().to(torch.float8_e4m3fn).to(torch.bfloat16)
    received[0].weight = nn.Parameter(twice)
    assert [name for name, _ in findings_of(received, manifest)] == ["0.weight"]


def test_what_was_sent_and_is_nowhere_is_a_finding_unless_it_is_tied():
    class Tied(nn.Module):
        def __init__(self, both=True):
            super().__init__()
            self.embed = nn.Embedding(3, 2)
            self.other = nn.Linear(2, 3)
            if both:
                self.head = nn.Linear(2, 3, bias=False)
                self.head.weight = self.embed.weight

    torch.manual_seed(0)
    trained = Tied()
    torch.manual_seed(0)
    engine = Tied(both=False)
    engine.load_state_dict(trained.state_dict(), strict=False)
    assert check(engine, against=seal(trained)).comparisons  # the head is the embedding
    del engine.other
    found = findings_of(engine, seal(trained))
    assert found == [(f"other.{each}", "it was sent, and no rank of the model holds it")
                     for each in ("bias", "weight")]  # fmt: skip


def test_what_a_tensor_holds_instead_is_named():
    engine = model(1)
    assert check(engine, against=seal(model(1), version=1)).comparisons
    newer = seal(model(2), version=2)
    engine.load_state_dict(model(2).state_dict())
    with torch.no_grad():
        engine[0].weight.copy_(model(1)[0].weight)
        engine[1].weight.zero_()
    found = dict(findings_of(engine, newer))
    assert found["0.weight"].startswith("it is still that of version 1")
    assert found["1.weight"].startswith("all of it is 0")


def test_a_version_that_goes_back_is_refused():
    engine = model()
    check(engine, against=seal(model(), version=5))
    check(engine, against=seal(model(), version=5))
    with pytest.raises(RuntimeError, match="its version is 4, and the model was compared with ver"):
        check(engine, against=seal(model(), version=4))
    check(engine, against=seal(model(), version=6))


def test_what_a_turn_does_not_look_at_is_not_missing():
    engine, manifest = model(), seal(model())
    first = check(engine, against=manifest, budget_s=5.0)
    assert first.looked_at < first.held


@pytest.mark.parametrize("version", ["3", 2.0, True])
def test_a_version_is_a_whole_number(version):
    with pytest.raises(RuntimeError, match="expected a whole number"):
        seal(model(), version=version)


def with_seal(text, spoil):
    said = json.loads(text)
    held = json.loads(zlib.decompress(base64.b64decode(said["held"])))
    held["seal"] = json.loads(spoil(json.dumps(held["seal"])))
    packed = zlib.compress(json.dumps(held).encode())
    return json.dumps({**said, "held": base64.b64encode(packed).decode()})


def edited(text):
    return with_seal(text, lambda seal_text: seal_text.replace("[2]", "[3]", 1))


def newer_schema(text):
    return text.replace('"manifest":3', '"manifest":4')


def older_schema(text):
    return text.replace('"manifest":3', '"manifest":2')


def other_digest(text):
    return with_seal(text, lambda seal_text: seal_text.replace("SPECIFICATION.md", "OTHER.md"))


def no_tensors(text):
    return with_seal(text, lambda seal_text: json.dumps({**json.loads(seal_text), "tensors": [1]}))


def with_blocks(name, block_bytes):
    def spoil(text):
        said = json.loads(text)
        held = json.loads(zlib.decompress(base64.b64decode(said["held"])))
        digests = base64.b64encode(bytes(32)).decode()  # two
        held |= {"block_bytes": block_bytes, "blocks": {name: digests}}
        packed = base64.b64encode(zlib.compress(json.dumps(held).encode())).decode()
        return json.dumps({**said, "held": packed})

    return spoil


def cut_within(text):
    said = json.loads(text)
    return json.dumps({**said, "held": said["held"][:-8]})


def not_packed(text):
    return json.dumps({**json.loads(text), "held": {"seal": {}}})


@pytest.mark.parametrize(
    "spoil, said",
    [(lambda text: text[:-20], "cannot be read"), (edited, "was changed"),
     (newer_schema, "schema 3, found 4"), (older_schema, "schema 3, found 2"),
     (cut_within, "cannot be read"), (not_packed, "cannot be read"),
     (lambda text: text.replace('"held":"', '"held":"!'), "cannot be read"),
     (other_digest, "expected a seal of schema 2"),
     (no_tensors, "no tensors as a seal has them"), (lambda text: "[]", "found 'list'"),
     (lambda text: "", "cannot be read"), (lambda text: "{}", "found None"),
     (lambda text: "[" * 100_000, "cannot be read"), (lambda text: 5, "cannot be read"),
     (with_blocks("none", 4), "blocks of none, which it lacks"),
     (with_blocks("0.weight", 4), "0.weight has 6 blocks of 4 bytes, found 2"),
     (with_blocks("0.bias", 0), "0.bias has 0 blocks of 0 bytes, found 2")],
    ids=["cut short", "edited", "newer", "older", "cut within", "not packed", "no base64", "other",
          "no tensors", "list", "empty", "none", "nested", "number",
         "blocks of none", "too few blocks", "blocks of no size"],
)  # fmt: skip
def test_a_manifest_that_is_none_is_one_line(spoil, said):
    with pytest.raises(ValueError, match=said) as raised:
        Manifest.from_json(spoil(seal(model(), version=1).to_json()))
    assert "\n" not in str(raised.value)


def test_a_manifest_of_another_model_is_no_pass():
    engine = nn.ParameterDict({"other": torch.ones(1)})
    with pytest.raises(RuntimeError, match="nothing was compared with <shardproof.Manifest"):
        check(engine, against=seal(model()))
    other = seal(nn.Sequential(nn.Linear(3, 4)))
    found = dict(findings_of(model(), other))
    assert "in the manifest a F32 [4, 3]" in found["0.weight"].replace("torch.float32", "F32")
