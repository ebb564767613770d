"""The command as it is run: what it prints, and its exit codes."""

import os
import subprocess
import sys
from pathlib import Path

CI = Path(__file__).resolve().parents[1]


def tidy(tree, *words):
    environment = os.environ | {"PYTHONPATH": str(CI)}
    words = [sys.executable, "-m", "tidy_rules", "--root", str(tree.root), *words]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_exit_codes(tree_of):
    tree = tree_of({"a.cc": "x" * 101 + "\n"})
    code, out, _ = tidy(tree, "columns")
    assert code == 1
    assert out.startswith("a.cc:1: 101 columns: expected at most 100\n")
    assert tidy(tree, "sizes")[0] == 0
    assert tidy(tree, "colums")[0] == 2


def test_a_list_that_cannot_be_read_is_told_in_one_line(tree_of):
    tree = tree_of({"ci/tidy_rules/exceptions.txt": "a.cc 1\n"})
    code, _, error = tidy(tree, "columns")
    assert (code, error.count("\n")) == (2, 1)
    tree = tree_of({"ci/tidy_rules/exceptions.txt": "[colums]\na.cc 1\n"})
    assert tidy(tree, "columns")[0] == 2


def test_shrink_writes_the_list(tree_of):
    listed = "ci/tidy_rules/exceptions.txt"
    tree = tree_of({listed: "[columns]\na.cc 2\ngone.cc 1\n", "a.cc": "x" * 101 + "\n"})
    assert tidy(tree, "columns")[0] == 1
    assert tidy(tree, "--shrink", "columns")[0] == 0
    assert (tree.root / listed).read_text() == "[columns]\na.cc 1\n"


def test_every_rule_has_a_module_and_tests():
    from tidy_rules.__main__ import RULES, module

    for name in RULES:
        assert module(name).__doc__ and callable(module(name).check)
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("*_test.py"))
    assert not [name for name in RULES if f"{name}.check(" not in tests]
