import pytest

from tidy_rules import sizes


@pytest.mark.parametrize("path", ["a.cc", "b.h", "c.py"])
def test_501_lines_are_one_too_many(tree_of, path):
    (found,) = sizes.check(tree_of({path: "x\n" * 501}))
    assert (found.path, found.line, found.size) == (path, 501, 501)


def test_500_are_not_and_data_is_not_counted(tree_of):
    assert not list(sizes.check(tree_of({"a.cc": "x\n" * 500, "b.json": "1\n" * 501})))
