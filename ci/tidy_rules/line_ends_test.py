import pytest

from tidy_rules import line_ends
from tidy_rules.tree import Tree


@pytest.mark.parametrize(
    ("data", "line"),
    [(b"a\r\nb\n", 1), (b"a\nb \n", 2), (b"a\n\t\n", 2), (b"a\nb", 2), (b"\ra\n", 1)],
)
def test_what_is_found(tmp_path, data, line):
    (tmp_path / "a.md").write_bytes(data)
    assert [finding.line for finding in line_ends.check(Tree(tmp_path))] == [line]


def test_what_is_not(tmp_path):
    (tmp_path / "a.cc").write_bytes(b"a\n\n b\n")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "b.bin").write_bytes(b"\0\r\n")
    (tmp_path / "fixtures/fuzz").mkdir(parents=True)
    (tmp_path / "fixtures/fuzz/a").write_bytes(b"\r")
    assert not list(line_ends.check(Tree(tmp_path)))
