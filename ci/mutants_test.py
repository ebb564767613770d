import json

import mutants
import pytest

CASES = {"case": {"seed": 3}, "numbered": True}


@pytest.fixture
def judged(tmp_path):
    """judged(what the command left or None, its exit code)."""

    def of(document, code):
        if document is not None:
            (tmp_path / "r.json").write_text(json.dumps(document))
        for name in ("b.json", "a.json"):
            (tmp_path / name).write_text("{}")
        return mutants.judge(tmp_path / "r.json", code, "simulated", tmp_path / "..")

    return of


def generated(**outcome):
    common = {"verdict": mutants.FAIL, "findings": [], "reason": "", "exit": "", "index": 3}
    failures = [{**CASES, "outcome": common | outcome}]
    return {"summary": {"failures": failures, "unclear": []}, "reason": ""}


def of_one(*properties, verdicts=()):
    findings = [{"property": one, "fingerprint": f"f-{one}"} for one in properties]
    return {"findings": findings, "properties": list(verdicts), "case": {"seed": 1}}


def test_what_passes_is_not_caught(judged):
    assert judged(None, "0") == ("pass", "", "simulated", None)


def test_a_generated_case_is_named_with_its_properties_once(judged):
    found = [["loading.a", 1], ["loading.b", 1], ["loading.a", 2]]
    verdict, by, where, case = judged(generated(findings=found), "1")
    assert (verdict, by) == ("caught", "loading.a, loading.b")
    assert where == "simulated, first in case 3" and case == CASES["case"]


def test_of_many_properties_four_are_named(judged):
    found = [[f"p.{i}", 1] for i in range(6)]
    assert judged(generated(findings=found), "1")[1] == "p.0, p.1, p.2, p.3 and 2 more"


@pytest.mark.parametrize(
    ("reason", "ended", "verdict", "by"),
    [
        ("its process ended", "signal 11", "caught", "crash (signal 11)"),
        ("no end within 9 s", "hang", "caught", "hang (no end within 9 s)"),
        ("no space", "", "inconclusive", "no space"),
    ],
)
def test_a_case_that_was_not_judged(judged, reason, ended, verdict, by):
    document = generated(reason=reason, exit=ended)
    summary = document["summary"]
    summary["failures"], summary["unclear"] = [], summary["failures"]
    assert judged(document, "1")[:2] == (verdict, by)


def test_a_file_is_named(judged):
    document = generated(findings=[["p.x", 1]], index=0)
    document["summary"]["failures"][0]["numbered"] = False
    assert judged(document, "1")[2] == "simulated, a.json"


def test_a_failure_comes_before_what_was_not_judged(judged):
    document = generated(findings=[["p.x", 1]])
    other = {**CASES, "outcome": {"verdict": 0, "findings": [], "reason": "no space", "exit": ""}}
    document["summary"]["unclear"].append(other)
    assert judged(document, "1")[:2] == ("caught", "p.x")


WEAK = {"findings": [[mutants.WEAKER, 1]]}


def several(failures=(), unclear=(), properties=None):
    common = {"verdict": mutants.FAIL, "findings": [], "reason": "", "exit": ""}
    of = [
        [{**CASES, "outcome": common | {"index": i} | one} for i, one in enumerate(each)]
        for each in (failures, unclear)
    ]
    return {
        "summary": {"failures": of[0], "unclear": of[1], "properties": properties or {}},
        "reason": "",
    }


def test_of_several_cases_that_counts_which_says_most(judged):
    named = {"findings": [[mutants.WEAKER, 1], ["loading.a", 2]]}
    verdict, by, where, _ = judged(several([WEAK, WEAK, named], [{"exit": "signal 6"}]), "1")
    assert (verdict, by) == ("caught", f"{mutants.WEAKER}, loading.a")
    assert where == "simulated, first in case 2"
    # Where nothing is named, a rank that did not finish says more than a command that was lost.
    assert judged(several([WEAK], [{"exit": "signal 6"}]), "1")[1] == mutants.WEAKER


def test_a_case_that_was_counted_and_not_kept_counts(judged):
    tallies = {
        mutants.WEAKER: {"failed": 30},
        "loading.a": {"failed": 0},
        "memory.b": {"failed": 1},
    }
    assert judged(several([WEAK] * 20, properties=tallies), "1")[:2] == ("caught", "memory.b")


def test_what_had_to_be_ended_counts_for_what_it_had_named(judged):
    named = {"findings": [["loading.a", 1]]}
    assert judged(several([WEAK, named]), "124")[1] == "loading.a"
    assert judged(several([WEAK]), "124")[1] == "hang (the command did not end)"


@pytest.mark.parametrize(
    ("by", "is_named"),
    [
        ("sharding.shards_tile, loading.all_defined", True),
        (f"{mutants.WEAKER}, memory.host_peak", True),
        (mutants.WEAKER, False),
        ("crash (signal 11)", False),
        ("hang (no end within 9.5 s)", False),
        ("unit Digest.OfNothing", False),
        ("unit: crash (signal 6)", False),
    ],
)
def test_what_is_named(by, is_named, tmp_path, capsys):
    assert mutants.is_named(by) == is_named
    findings = [] if "(" in by or "unit" in by else by.split(", ")
    if not findings:
        return
    (tmp_path / "r.json").write_text(json.dumps(of_one(*findings)))
    mutants.main("judge", str(tmp_path / "r.json"), "1", "models", "", str(tmp_path / "c.json"))
    assert capsys.readouterr().out.split("\n")[0] == ("named" if is_named else "weak")
    assert json.loads((tmp_path / "c.json").read_text()) == {"seed": 1}


def test_one_case(judged):
    assert judged(of_one("memory.peak"), "1")[:2] == ("caught", "memory.peak")
    inconclusive = {"verdict": "inconclusive", "reason": "no cgroup"}
    assert judged(of_one(verdicts=[inconclusive]), "3")[:2] == ("inconclusive", "no cgroup")


@pytest.mark.parametrize(
    ("code", "verdict", "by"),
    [
        ("124", "caught", "hang (the command did not end)"),
        ("139", "caught", "crash (signal 11 of the command)"),
        ("2", "inconclusive", "exit code 2"),
    ],
)
def test_a_command_that_left_nothing(judged, code, verdict, by):
    assert judged(None, code)[:2] == (verdict, by)


@pytest.mark.parametrize(
    ("log", "code", "expected"),
    [
        ("", "0", ("pass", "")),
        (
            "[  FAILED  ] Save.Keeps (3 ms)\n[  FAILED  ] Save.Keeps\n",
            "1",
            ("caught", "unit Save.Keeps"),
        ),
        ("", "137", ("caught", "unit: hang (the tests did not end)")),
        ("", "134", ("caught", "unit: crash (signal 6)")),
        ("", "3", ("caught", "unit: crash (exit code 3)")),
    ],
)
def test_unit_tests(log, code, expected):
    assert mutants.of_unit(log, code) == expected


def test_the_document_has_a_row_a_line():
    assert mutants.document_of(["a.patch\tSURVIVED\t\tunit\t12\n"]) == [
        {"patch": "a.patch", "verdict": "survived", "by": "", "where": "unit", "seconds": 12}
    ]
    with pytest.raises(ValueError, match="zip"):
        mutants.document_of(["a.patch\tSURVIVED\n"])


def test_score_counts_what_was_judged_and_what_a_property_names():
    patches = [
        {"verdict": "caught", "by": "sharding.shards_tile, loading.all_defined"},
        {"verdict": "caught", "by": "crash (signal 6)"},
        {"verdict": "caught", "by": "fault.every_rank_finishes"},
        {"verdict": "caught", "by": "unit Digest.OfNothing"},
        {"verdict": "caught", "by": "hang (the command did not end)"},
        {"verdict": "survived", "by": ""},
        {"verdict": "inconclusive", "by": "nothing was compared"},
        {"verdict": "equivalent", "by": ""},
        {"verdict": "no build", "by": ""},
        {"verdict": "survived", "by": ""},
    ]
    assert mutants.counts_of(patches) == (8, 5, 1)
    assert mutants.score(patches, (62, 12)) == (
        "62.5 % caught (at least 62), 12.5 % by a property (at least 12) of 8",
        True,
    )
    assert not mutants.score(patches, (63, 12))[1]
    assert not mutants.score(patches, (62, 13))[1]


def test_a_score_has_fallen_if_chance_does_not_explain_it():
    def of(named, weaker, survived):
        return [
            *[{"verdict": "caught", "by": "loading.all_defined"}] * named,
            *[{"verdict": "caught", "by": "fault.every_rank_finishes"}] * weaker,
            *[{"verdict": "survived", "by": ""}] * survived,
        ]

    # Where 90 % are: fewer than 18 of 24 in 1 of 134 draws, fewer than 19 in 1 of 36.
    assert mutants.score(of(18, 0, 6), (95, 85), (90, 50))[1]
    line, enough = mutants.score(of(17, 0, 7), (95, 85), (90, 50))
    assert not enough
    assert line.endswith("70.8 % by a property (floor 50) of 24: it has fallen")
    assert not mutants.score(of(5, 19, 0), (95, 85), (90, 50))[1]
    assert mutants.score(of(24, 0, 0), (95, 85), (100, 100))[1]
