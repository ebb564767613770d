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


def test_so_is_one_that_is_given_to_a_function(tree_of):
    text = (
        "def words_of(text):\n    return text.split(' ')\n\n\n"
        'def f(told):\n    return words_of(told["expected"])\n'
    )
    assert [one.line for one in read_back.check(tree_of({"verify/report/a.py": text}))] == [2]


def cpp(tree_of, line, path="verify/report/a.cc"):
    text = f"/* a\n comment */\nbool F() {{\n  {line}\n}}\n"
    return [finding.line for finding in read_back.check(tree_of({path: text}))]


@pytest.mark.parametrize(
    "line",
    [
        'if (bad.outcome.line.starts_with("the load died")) return true;',
        'return bad.outcome.line.starts_with("loads");',
        'return compared.error().message.starts_with("map: ");',
        "return error.message.substr(0, error.message.find(kColon));",
        "return message.find(value) != std::string::npos;",
        "return message.find(\n      value) != std::string::npos;",
        'return last.starts_with("rank ");',
        'return x.find(" of ") != std::string::npos;',
        'return ran.how == "exit 1";',
        "return std::regex_search(finding.message, parts, kPattern);",
    ],
)
def test_one_that_cpp_takes_apart_is_found(tree_of, line):
    assert cpp(tree_of, line) == [4]


@pytest.mark.parametrize(
    "line",
    [
        'return name.ends_with(".pt");',
        'return path.find("//") != std::string::npos;',
        "return error.message.find('\\n') == std::string::npos;",
        'return finding.message == other.message && kind == "differs";',
        'return expected.find("-") == 0;',
        '// message.find("a b")',
        'run(R"(a.message.find("a b"))");',
        'return fmt::format("{}: message.find(a b)", finding.message);',
    ],
)
def test_one_that_cpp_only_shows_is_not(tree_of, line):
    assert not cpp(tree_of, line)


def test_what_others_say_may_be_read_where_it_is_listed(tree_of):
    line = 'return error.find("reset by peer") == 0;'
    assert not cpp(tree_of, line, "src/comm/roll_call.cc")
    (stale,) = read_back.check(tree_of({"src/comm/roll_call.cc": ""}))
    assert "not read back any more" in stale.what


def test_tests_may(tree_of):
    body = ['assert "x" in finding["message"]']
    assert not found(tree_of, body, "verify/selftest/test_a.py")
    assert not found(tree_of, body, "verify/report/a_test.py")
    assert not cpp(tree_of, 'return message == "a b";', "verify/report/a_test.cc")
