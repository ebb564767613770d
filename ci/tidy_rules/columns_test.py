from tidy_rules import columns


def test_a_line_of_101_columns_is_found_in_every_language(tree_of, places):
    long = "x" * 101 + "\n"
    texts = {
        "a.cc": "\n" + long,
        "b.py": long,
        "CMakeLists.txt": long,
        "c.cmake": long,
        "ci/run": "#!/usr/bin/env bash\n" + long,
    }
    found = places(columns.check(tree_of(texts)))
    assert sorted(found) == ["CMakeLists.txt:1", "a.cc:2", "b.py:1", "c.cmake:1", "ci/run:2"]


def test_100_columns_are_well_and_a_letter_of_two_bytes_is_one(tree_of):
    assert not list(columns.check(tree_of({"a.cc": "x" * 100 + "\n", "b.py": "ä" * 100 + "\n"})))


def test_prose_and_data_may_be_longer(tree_of):
    long = "x" * 300 + "\n"
    texts = {"README.md": long, "packages.txt": long, "a.json": long, "LICENSE": long}
    assert not list(columns.check(tree_of(texts)))
