import json
import xml.etree.ElementTree as ElementTree

import pytest
import skips


def of_ctest(name, status, output=""):
    skipped = '<skipped message="by ctest"/>' if status == "notrun" else ""
    return (
        f'<testcase name="{name}" status="{status}">{skipped}'
        f"<system-out>{output}</system-out></testcase>"
    )


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("a\nskipped: no GPU here\nb", "no GPU here"),
        ("Skip: no root", "no root"),
        ("x_test.cc:3: Skipped\nneeds AVX-512\n[  SKIPPED ]", "needs AVX-512"),
        ("one\nlast line\n\n", "last line"),
        ("", "by ctest"),
    ],
)
def test_the_reason_of_a_skip(output, reason):
    assert skips.reason_of(ElementTree.fromstring(of_ctest("a", "notrun", output))) == reason


@pytest.fixture
def told(tmp_path, capsys):
    """told(cases, labels by name, required): exit code, and what was printed."""

    def of(cases, labels, *required):
        (tmp_path / "r.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
        tests = [
            {"name": name, "properties": [{"name": "LABELS", "value": value}]}
            for name, value in labels.items()
        ]
        (tmp_path / "c.json").write_text(json.dumps({"tests": tests}))
        code = skips.main(str(tmp_path / "r.xml"), str(tmp_path / "c.json"), *required)
        return code, capsys.readouterr().out

    return of


def test_a_required_label_of_which_nothing_ran_fails(told):
    labels = {"a": ["unit"], "b": ["fault"], "c": ["fault"]}
    cases = [of_ctest("a", "run"), of_ctest("b", "notrun", "skipped: no net")]
    code, out = told(cases, labels, "unit", "fault")
    assert code == 1
    assert "label fault: 2 test(s), none of which ran" in out and "label unit" not in out


def test_a_test_that_failed_did_run(told):
    assert told([of_ctest("a", "fail")], {"a": ["unit"]}, "unit") == (0, "")


def test_skips_are_folded_by_reason(told):
    cases = [of_ctest(f"t{i}", "notrun", "skipped: no net") for i in range(7)]
    code, out = told(cases, {})
    assert code == 0
    assert "skipped, 7 test(s): no net" in out and "and 2 more" in out and "t5" not in out
