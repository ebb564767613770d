"""How a script states its case, and what lies beside it."""

import ast
import os
import tempfile
import unittest

import torch
from modules import modules_of
from script import Call, literal, write_harness


class Literals(unittest.TestCase):
    def test_what_fits_is_on_one_line(self):
        self.assertEqual(
            Call("Job", {"a": [1, 2], "b": ("x", None)}).text(), 'Job(a=[1, 2], b=("x", None))'
        )

    def test_what_does_not_fit_has_a_line_for_each(self):
        names = [f"model.layers.{i}.weight" for i in range(5)]
        text = Call("Check", {"tensors": names, "of": {"a": Call("Other", {})}}).text()
        self.assertLessEqual(max(map(len, text.splitlines())), 100)
        self.assertEqual(text.splitlines()[2], '        "model.layers.0.weight",')
        self.assertTrue(text.endswith("\n)"), text)

    def test_a_value_comes_back_as_it_was(self):
        value = {"a": [1, 2.5, -0.0], "b": ("x\"'\n\\", True, None), "long": ["y" * 60, "z" * 60]}
        self.assertEqual(ast.literal_eval(literal(value)), value)
        scope = {"torch": torch}
        nan, dtype = eval(literal([float("nan"), torch.bfloat16]), scope)
        self.assertNotEqual(nan, nan)
        self.assertIs(dtype, torch.bfloat16)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def test_the_harness_needs_nothing_of_the_package(self):
        write_harness(self.folder)
        names = sorted(os.listdir(os.path.join(self.folder, "harness")))
        self.assertFalse([one for one in names if one.endswith("_test.py")])
        for name in names:
            with open(os.path.join(self.folder, "harness", name)) as file:
                self.assertNotRegex(file.read(), r"(import|from) shardproof", name)

    def test_a_subject_brings_what_it_imports_from_beside_it(self):
        path = self.write(
            "one.py", "import json\nimport two\nfrom three.deep import x\nimport four\n"
        )
        self.write("two.py", "import torch.nn\n")
        self.write("three/__init__.py", "")
        self.write("three/deep.py", "x = 1\n")
        self.write("four/__init__.py", "")
        self.write("four/native.so", "")
        files, installed, left = modules_of(path, [self.folder])
        self.assertEqual(sorted(files), ["one.py", "three/__init__.py", "three/deep.py", "two.py"])
        self.assertEqual(sorted(installed), ["json", "torch.nn"])
        self.assertEqual(left, ["four"])


if __name__ == "__main__":
    unittest.main()
