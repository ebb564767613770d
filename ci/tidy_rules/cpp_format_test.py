from tidy_rules import cpp_format

STYLE = "BasedOnStyle: Google\nColumnLimit: 100\n"


def test_what_clang_format_would_change_is_found_by_line(tree_of, places):
    text = "int a = 1;\nint  b=2;\nint c = 3;\n"
    tree = tree_of({".clang-format": STYLE, "a.cc": text, "b.h": "int d = 4;\n"})
    assert places(cpp_format.check(tree)) == ["a.cc:2"]


def test_what_it_would_not_change_is_not(tree_of):
    tree = tree_of({".clang-format": STYLE, "a.cc": "int a = 1;\n"})
    assert not list(cpp_format.check(tree))
