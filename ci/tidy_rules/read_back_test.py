import pytest

from tidy_rules import read_back


def found(tree_of, body, path="verify/report/a.py"):
    text = "import re\ndef f(finding, other):\n" + "".join(f"    {line}\n" for line in body)
    return [finding.line for finding in read_back.check(tree_of({path: text}))]


@pytest.mark.parametrize(
    "line",
    [
        're.search(r"a (.*)", finding["message"])',
        'a = finding["expected"].split(" ")',
        'a = "x" in finding["seen"]',
        'a = "x" not in finding.get("detail", "")',
        'a = (finding["seen"] or finding["message"]).startswith("x")',
        'a = (lambda one: one["explanation"].partition(":"))(finding)',
    ],
)
def test_a_sentence_that_is_taken_apart_is_found(tree_of, line):
    assert found(tree_of, [line]) == [3]


def test_so_is_one_in_a_variable(tree_of):
    assert found(tree_of, ['here, said = finding["phase"], finding["message"]', '"x" in said']) == [
        4
    ]
    assert found(tree_of, ['if said := finding.get("message"):', '    said.split("x")']) == [4]


@pytest.mark.parametrize(
    "line",
    [
        'print(finding["message"])',
        'a = finding["property"] + ": " + finding["message"]',
        'a = finding["message"] == other["message"]',
        'a = "x" in finding["option"]',
        'a = finding["tensor"].split(".")',
    ],
)
def test_one_that_is_only_shown_is_not(tree_of, line):
    assert not found(tree_of, [line])


def test_tests_may(tree_of):
    body = ['assert "x" in finding["message"]']
    assert not found(tree_of, body, "verify/selftest/test_a.py")
    assert not found(tree_of, body, "verify/report/a_test.py")
