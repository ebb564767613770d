import json
import xml.etree.ElementTree as ElementTree

import pytest
import results


def of_ctest(name, status, output=""):
    skipped = '<skipped message="by ctest"/>' if status == "notrun" else ""
    return (
        f'<testcase name="{name}" status="{status}" time="3">{skipped}'
        f"<system-out>{output}</system-out></testcase>"
    )


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("a\nskipped: no GPU here\nb", "no GPU here"),
        ("Skip: no root", "no root"),
        ("one\nlast line\n\n", "last line"),
        ("", "by ctest"),
    ],
)
def test_the_reason_of_a_skip(output, reason):
    assert results.reason_of(ElementTree.fromstring(of_ctest("a", "notrun", output))) == reason


def program(*cases):
    """The XML of a GoogleTest program, of (name, reason of a skip or None)."""
    texts = []
    for name, reason in cases:
        skipped = f'<skipped message="x_test.cc:3&#10;{reason}"/>' if reason else ""
        texts.append(
            f'<testcase classname="S" name="{name}" status="run" time="2">{skipped}</testcase>'
        )
    return f"<testsuites>{''.join(texts)}</testsuites>"


@pytest.fixture
def told(tmp_path, capsys):
    """told(cases, labels by name, required): exit code, and what was printed."""

    def of(cases, labels, *required, programs=None):
        (tmp_path / "r.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        tests = [
            {"name": name, "properties": [{"name": "LABELS", "value": value}]}
            for name, value in labels.items()
        ]
        (tmp_path / "c.json").write_text(json.dumps({"tests": tests}))
        for name, text in (programs or {}).items():
            (tmp_path / f"{name}.xml").write_text(text)
        paths = str(tmp_path / "r.xml"), str(tmp_path / "c.json"), str(tmp_path)
        code = results.main(*paths, *required)
        return code, capsys.readouterr().out

    return of


def test_a_required_label_of_which_nothing_ran_fails(told):
    labels = {"a": ["unit"], "b": ["fault"], "c": ["fault"]}
    cases = [of_ctest("a", "run"), of_ctest("b", "notrun", "skipped: no net")]
    code, out = told(cases, labels, "unit", "fault")
    assert code == 1
    assert "label fault: 2 test(s), none of which ran" in out and "label unit:" not in out


def test_a_test_that_failed_did_run(told):
    assert told([of_ctest("a", "fail")], {"a": ["unit"]}, "unit")[0] == 0


def test_skips_are_folded_by_reason(told):
    cases = [of_ctest(f"t{i}", "notrun", "skipped: no net") for i in range(7)]
    code, out = told(cases, {})
    skips = out[out.index("skipped, ") :]
    assert code == 0
    assert skips.startswith("skipped, 7 test(s): no net") and "and 2 more" in skips
    assert "t5" not in skips


def test_a_program_whose_cases_were_all_skipped_did_not_run(told):
    skipped = program(("A", "needs AVX-512"), ("B", "needs AVX-512"))
    code, out = told([of_ctest("u", "run")], {"u": ["unit"]}, "unit", programs={"u": skipped})
    assert code == 1 and "skipped, 2 test(s): needs AVX-512" in out
    one_ran = program(("A", "needs AVX-512"), ("B", None))
    assert told([of_ctest("u", "run")], {"u": ["unit"]}, "unit", programs={"u": one_ran})[0] == 0


def test_minutes_are_added_up_by_label_and_a_program_is_told_by_its_cases(told):
    cases = [of_ctest("u", "run"), of_ctest("v", "run")]
    _, out = told(
        cases, {"u": ["unit"], "v": ["unit", "fast"]}, programs={"u": program(("A", None))}
    )
    lines = [line.strip() for line in out.splitlines()]
    assert "0.1  unit, 2 test(s)" in lines and "0.1  fast, 1 test(s)" in lines
    assert "2.0  u: S.A" in lines and "3.0  v" in lines and "3.0  u" not in lines
