from tidy_rules import python_check, python_format

PROJECT = '[tool.ruff]\nline-length = 100\n[tool.ruff.lint]\nselect = ["F"]\n'


def test_an_unused_import_is_found(tree_of):
    tree = tree_of({"pyproject.toml": PROJECT, "a.py": "\nimport os\n", "b.py": "A = 1\n"})
    (found,) = python_check.check(tree)
    assert (found.path, found.line, found.key) == ("a.py", 2, "a.py:F401")


def test_clean_code_is_not(tree_of):
    assert not list(python_check.check(tree_of({"pyproject.toml": PROJECT, "b.py": "A = 1\n"})))


def test_a_file_that_ruff_would_lay_out_otherwise_is_found(tree_of, places):
    tree = tree_of({"pyproject.toml": PROJECT, "x/a.py": "A  = 1\n", "b.py": "A = 1\n"})
    assert places(python_format.check(tree)) == ["x/a.py:1"]
