"""Two verdicts beside each other, and a bisection; the runs themselves are made up."""

import dataclasses
import json
import subprocess
import sys

import pytest

from shardproof import versions
from shardproof._versions import _env, _table


def result(verdicts: dict, findings=(), verdict=None):
    worst = "fail" if findings else "pass"
    return {
        "verdict": verdict or worst,
        "properties": [
            {"id": key, "verdict": each, "findings": sum(f[0] == key for f in findings)}
            for key, each in verdicts.items()
        ],
        "findings": [
            {"property": key, "fingerprint": mark, "message": text} for key, mark, text in findings
        ],
    }


def report(folder, document, memory=()):
    (folder / "evidence" / "memory").mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps(document))
    for rank, samples in enumerate(memory):
        lines = [
            json.dumps({"record": "memory", "time_ms": at, "anonymous_bytes": mib << 20,
                        "stage": stage})
            for at, (stage, mib) in enumerate(samples)
        ]  # fmt: skip
        path = folder / "evidence" / "memory" / f"rank_{rank}.measures.jsonl"
        path.write_text("\n".join(lines) + "\n")
    return folder


def compared(tmp_path, base, head, memory=((), ())):
    sides = [
        _table.side_of(name, report(tmp_path / name, document, samples))
        for name, document, samples in zip(("base", "head"), (base, head), memory)
    ]
    return _table.difference(*sides)


SOUND = result({"loading.a": "pass", "memory.b": "pass", "offload.c": "skip"})
BROKEN = result(
    {"loading.a": "pass", "memory.b": "fail", "offload.c": "skip"},
    [("memory.b", "f1", "w_1 | is 3"), ("memory.b", "f2", "w_2 is <4>")],
)


def test_a_head_that_fails_where_the_base_held_is_worse(tmp_path):
    found = compared(tmp_path, SOUND, BROKEN)
    assert (len(found.new), found.gone, found.worse, found.exit_code()) == (2, [], ["memory.b"], 1)
    table = _table.markdown(found)
    assert "`base` against `head`: the head is worse, 2 new findings" in table
    assert "| `memory.b` | pass | fail, 2 findings |" in table
    assert "2 other properties have the same verdict in both." in table
    assert "- `memory.b`: w\\_1 \\| is 3\n- `memory.b`: w\\_2 is \\<4>" in table


def test_a_head_that_mends_the_base_is_not(tmp_path):
    found = compared(tmp_path, BROKEN, SOUND)
    assert (found.new, len(found.gone), found.exit_code()) == ([], 2, 0)
    assert "the head is better, 2 findings are gone" in _table.markdown(found)


def test_what_is_in_both_is_no_news(tmp_path):
    found = compared(tmp_path, BROKEN, BROKEN)
    assert (found.new, found.gone, len(found.same), found.exit_code()) == ([], [], 2, 0)
    table = _table.markdown(found)
    assert "no difference in what was found" in table and "fail, 2 findings | fail, 2" in table


def test_a_head_of_which_less_was_judged_is_inconclusive(tmp_path):
    less = result({"loading.a": "inconclusive", "memory.b": "pass"}, verdict="inconclusive")
    found = compared(tmp_path, SOUND, less)
    assert found.exit_code() == 3 and found.worse == ["loading.a"]
    assert "could not be judged as the base was" in _table.markdown(found)


def test_memory_is_that_of_the_rank_that_held_most_on_the_way_to_a_stage_of_all(tmp_path):
    base = [
        [("start", 100), ("start", 103), ("built", 105), ("loaded", 120), ("ready", 180)],
        [("start", 100), ("start", 140), ("built", 130), ("ready", 125)],
    ]
    head = [
        [("start", 50), ("built", 51), ("ready", 60)],
        [("start", 60), ("built", 61), ("ready", 62)],
    ]
    table = _table.markdown(compared(tmp_path, SOUND, SOUND, (base, head)))
    rows = [line.split() for line in table.partition("```\n")[2].splitlines()[1:-1]]
    assert [row[0] for row in rows[::2]] == ["built", "ready"]
    assert rows[0][1:4] == ["43.0", "40.0", "base"] and rows[0][-1] == "1"
    assert rows[2][1:3] == ["50.0", "30.0"] and rows[2][-1] == "1"
    assert rows[3][:3] == ["2.0", "1.0", "head"]


# ---- Bisection -----------------------------------------------------------------------------------

RELEASES = [f"1.{minor}" for minor in range(10)]


@dataclasses.dataclass
class World:
    """bad: from this release on; unknown: releases that cannot be judged."""

    bad: int
    unknown: tuple = ()
    tried: list = dataclasses.field(default_factory=list)

    def verify(self, words):
        minor = int(words[words.index("--python") + 1].rpartition(".")[2])
        self.tried.append(minor)
        if minor in self.unknown:
            return subprocess.CompletedProcess(words, 3, "inconclusive: nothing\n", "")
        if minor >= self.bad:
            return subprocess.CompletedProcess(words, 1, "shardproof: fail\nFAIL x: y\n", "")
        return subprocess.CompletedProcess(words, 0, "pass\n", "")


@pytest.fixture
def world(monkeypatch):
    def made(**options):
        one = World(**options)
        monkeypatch.setattr(versions, "_verify", one.verify)
        monkeypatch.setattr(_env, "python_of", lambda spec, base, say: spec)
        monkeypatch.setattr(_env, "releases_of", lambda name, base: RELEASES)
        return one

    return made


@pytest.mark.parametrize("bad", range(1, 10))
def test_the_first_release_that_fails_is_found(bad, world, capsys):
    one = world(bad=bad)
    assert versions.main(["bisect", "--good", "p==1.0", "--bad", "p==1.9", "--subject", "s"]) == 0
    assert f"p==1.{bad - 1} passes, p==1.{bad} fails:\n  FAIL x: y" in capsys.readouterr().out
    assert len(one.tried) == len(set(one.tried)) <= 6


def test_where_a_newer_release_is_the_good_one(world, capsys):
    one = world(bad=0)
    one.verify = lambda words: subprocess.CompletedProcess(
        words, int(int(words[-1].rpartition(".")[2]) < 4), "FAIL x\n", ""
    )
    versions._verify = one.verify
    assert versions.main(["bisect", "--good", "p==1.9", "--bad", "p==1.0"]) == 0
    assert "p==1.4 passes, p==1.3 fails" in capsys.readouterr().out


def test_releases_that_cannot_be_judged_are_named(world, capsys):
    world(bad=5, unknown=(4, 5))
    assert versions.main(["bisect", "--good", "p==1.0", "--bad", "p==1.9"]) == 3
    out = capsys.readouterr().out
    assert "p==1.3 passes, p==1.6 fails" in out and "not judged in between: 1.4, 1.5" in out


@pytest.mark.parametrize(
    "words, said",
    [(["--good", "p==1.0"], "expected --good NAME==VERSION and --bad"),
     (["--good", "p==1.0", "--bad", "q==1.1"], "two releases of one package"),
     (["--good", "p==1.0", "--bad", "p==1.77"], "the package index has no release 1.77"),
     (["--good", "p==1.5", "--bad", "p==1.9"], "p==1.5 is not good: FAIL x: y"),
     (["--good", "p==1.0", "--bad", "p==1.2"], "p==1.2 is not bad: pass")],
)  # fmt: skip
def test_bad_ends_are_one_line(words, said, world, capsys):
    world(bad=4)
    assert versions.main(["bisect", *words]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("code, expected", [(0, 0), (1, 1), (4, 1), (2, 125), (3, 125), (77, 125)])
def test_a_checkout_answers_as_git_bisect_expects(code, expected, world, monkeypatch, tmp_path):
    world(bad=0)
    done = subprocess.CompletedProcess([], code, "", "")
    monkeypatch.setattr(versions, "_verify", lambda words: done)
    assert versions.main(["bisect", "--checkout", str(tmp_path), "--subject", "s"]) == expected


def test_words_that_do_not_go_together_are_one_line(world, capsys):
    world(bad=0)
    assert versions.main(["verify", "--base", "p==1.0"]) == 2
    assert versions.main(["verify", "--base", "p==1.0", "--head", "p==1.1", "--json", "x"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "give both" in lines[0] and "--json cannot be combined with two releases" in lines[1]


# ---- Environments --------------------------------------------------------------------------------


def test_a_checkout_comes_before_what_is_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "checkout" / "src"
    source.mkdir(parents=True)
    (source / "packaging.py").write_text("WHERE = 'the checkout'\n")
    told = []
    python = _env.python_of(str(source.parent), sys.executable, told.append)
    code = "import packaging, torch; print(packaging.WHERE, bool(torch.__version__))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    assert done.stdout == "the checkout True\n", done.stderr
    assert python == _env.python_of(str(source.parent), sys.executable, told.append)
    assert len(told) == 1  # the second time it was there


@pytest.mark.parametrize("spec", ["transformers", "a==1;rm", "../x==1", "a==1,,b==2", ""])
def test_a_spec_that_is_none_is_one_line(spec):
    with pytest.raises(_env.Unavailable, match="expected NAME==VERSION or the folder"):
        _env.python_of(spec, sys.executable, print)


def test_a_release_that_is_nowhere_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(_env.Unavailable, match="pip cannot install nothing-such==1.0"):
        _env.python_of("nothing-such==1.0", sys.executable, print)
    assert not list(tmp_path.rglob("nothing-such*"))


def test_a_cache_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    cache = tmp_path / "file"
    cache.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    with pytest.raises(_env.Unavailable, match=r"cannot hold the environment .*XDG_CACHE_HOME"):
        _env.python_of(str(tmp_path), sys.executable, lambda text: None)
