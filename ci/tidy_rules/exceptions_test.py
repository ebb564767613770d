import subprocess

import pytest

from tidy_rules import exceptions
from tidy_rules.exceptions import BadList, grown, judge, parse, shrunk
from tidy_rules.tree import Finding

LIST = "# why\n[sizes]\na.cc 600\n[columns]\na.cc 2\nb.cc 1\n"


def of(path, size=1, line=1):
    return Finding(path, line, "too long", size=size)


def test_a_list_is_read_by_rule():
    assert parse(LIST) == {"sizes": {"a.cc": (600, 3)}, "columns": {"a.cc": (2, 5), "b.cc": (1, 6)}}


@pytest.mark.parametrize("line", ["a.cc", "a.cc 0", "a.cc many", "a.cc 1\na.cc 1"])
def test_a_line_that_cannot_be_read_is_refused(line):
    with pytest.raises(BadList, match="exceptions.txt"):
        parse(f"[sizes]\n{line}\n")


def test_what_is_excused_in_full_is_not_told():
    assert not judge([of("a.cc", 600)], parse(LIST)["sizes"])
    assert not judge([of("a.cc", line=1), of("a.cc", line=2), of("b.cc")], parse(LIST)["columns"])


def test_one_more_is_told_and_so_is_what_no_exception_names():
    found = judge([of("a.cc", 601), of("c.cc", 501)], parse(LIST)["sizes"])
    assert [one.path for one in found] == ["a.cc", "c.cc"]


@pytest.mark.parametrize("findings", [[], [of("a.cc", 599)]])
def test_an_exception_for_more_than_there_is_is_stale(findings):
    (found,) = judge(findings, parse(LIST)["sizes"])
    assert (found.path, found.line) == (exceptions.PATH, 3)


def test_a_rule_may_not_excuse_more_than_before():
    before = parse(LIST)
    assert not grown(parse(LIST.replace("a.cc 2", "renamed.cc 2")), before)
    assert not grown(parse(LIST + "[functions]\na.cc:F 80\n"), before)  # a new rule
    assert not grown(before, {})
    (found,) = grown(parse(LIST.replace("b.cc 1", "b.cc 1\nc.cc 1")), before)
    assert "[columns] allows 4 in total: expected at most 3" in found.what


def test_shrinking_takes_back_what_is_not_needed_and_adds_nothing():
    found = {"sizes": [of("a.cc", 550), of("new.cc", 700)], "columns": [of("a.cc")] * 5}
    assert shrunk(LIST, found) == "# why\n[sizes]\na.cc 550\n[columns]\na.cc 2\n"


def test_an_exception_follows_a_file_to_another_folder():
    moved = {"sizes": [of("x/y/a.cc", 600)]}
    assert shrunk("[sizes]\na.cc 600\n", moved) == "[sizes]\nx/y/a.cc 600\n"
    two = {"sizes": [of("x/a.cc", 600), of("y/a.cc", 600)]}  # which of them is it?
    assert shrunk("[sizes]\na.cc 600\n", two) == "[sizes]\n"
    other = {"sizes": [of("x/a.cc", 600)]}
    assert shrunk("[sizes]\na.cc 600\nx/a.cc 600\n", other) == "[sizes]\nx/a.cc 600\n"


def test_rules_that_were_not_looked_at_keep_their_exceptions():
    assert shrunk(LIST, {"sizes": []}) == "# why\n[sizes]\n[columns]\na.cc 2\nb.cc 1\n"


def test_the_lists_of_the_last_two_commits_are_bounds(tree_of):
    def commit(text):
        tree = tree_of({exceptions.PATH: text})
        named = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
        for words in (["init"], ["add", "-f", "."], ["commit", "--allow-empty", "-m", "a"]):
            words = ["git", "-C", str(tree.root), *named, *words]
            subprocess.run(words, check=True, capture_output=True)
        return tree

    more = LIST + "c.cc 1\n"
    assert not list(
        exceptions.check(tree_of({exceptions.PATH: more}))
    )  # no git, nothing to hold it against
    commit(LIST)
    assert len(exceptions.check(tree_of({exceptions.PATH: more}))) == 1
    assert len(exceptions.check(commit(more))) == 1
    assert not exceptions.check(commit(more))
