from tidy_rules import functions


def cpp(lines):
    """A function of so many lines."""
    return "namespace shardproof {\nint Sum(int a) {\n" + "  a += 1;\n" * (lines - 2) + "}\n}\n"


def test_71_lines_of_cpp_are_one_too_many(tree_of):
    (found,) = functions.check(tree_of({"a.cc": cpp(71)}))
    assert (found.path, found.line, found.size, found.key) == ("a.cc", 2, 71, "a.cc:Sum")


def test_70_are_not(tree_of):
    python = "def f(a):\n" + "    a += 1\n" * 69
    assert not list(functions.check(tree_of({"a.cc": cpp(70), "b.py": python})))


def test_python_is_counted_too(tree_of):
    (found,) = functions.check(tree_of({"b.py": "\n\ndef f(a):\n" + "    a += 1\n" * 70}))
    assert (found.path, found.line, found.size) == ("b.py", 3, 71)


def test_of_a_google_test_both_names_tell(tree_of):
    text = "TEST(Digest, AddsUp) {\n" + "  Call();\n" * 80 + "}\n"
    (found,) = functions.check(tree_of({"a_test.cc": text}))
    assert found.key == "a_test.cc:TEST(Digest,AddsUp)"


def test_a_lambda_is_a_part_of_its_function(tree_of):
    text = (
        "int Sum(int a) {\n  const auto add = [&](int b) {\n" + "    a += b;\n" * 70 + "  };\n}\n"
    )
    (found,) = functions.check(tree_of({"a.cc": text}))
    assert (found.line, found.size, found.key) == (1, 74, "a.cc:Sum")


def test_a_lambda_in_no_function_is_counted(tree_of):
    text = 'namespace {\n// [a]{\nconst auto kAdd = [](int a) -> int {\n  Call("}");\n'
    text += "  Call();\n" * 68 + "};\nint kList[] = {\n" + "  1,\n" * 80 + "};\n}\n"
    (found,) = functions.check(tree_of({"a.cc": text}))
    assert (found.line, found.size) == (3, 71)
    assert not list(functions.check(tree_of({"a.cc": text.replace("  Call();\n", "", 1)})))


def test_what_a_module_does_is_counted_and_what_it_defines_is_not(tree_of):
    defined = '"""A script."""\nimport sys\n\nTABLE = {\n' + '    "a": 1,\n' * 80 + "}\n"
    (found,) = functions.check(tree_of({"b.py": defined + "print(1)\n" * 71}))
    assert (found.line, found.size, found.key) == (1, 71, "b.py:module")
    assert not list(functions.check(tree_of({"b.py": defined + "print(1)\n" * 70})))
