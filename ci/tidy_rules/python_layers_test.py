from tidy_rules import python_layers
from tidy_rules.python_layers import ROOT


def test_a_circle_of_packages_is_found(tree_of):
    texts = {
        f"{ROOT}_above/_a.py": "from .._below._b import x\nfrom . import _c\n",
        f"{ROOT}_above/_c.py": "",
        f"{ROOT}_below/_b.py": "def x():\n    from shardproof._above import _c\n",
    }
    (found,) = python_layers.check(tree_of(texts))
    assert "_above" in found.what and "_below" in found.what
    assert found.path in texts


def test_a_circle_by_way_of_a_module_beside_them_is_found(tree_of):
    texts = {f"{ROOT}_a/_x.py": "from .. import case\n", f"{ROOT}case.py": "from ._a import _x\n"}
    (found,) = python_layers.check(tree_of(texts))
    assert "case" in found.what


def test_what_is_below_and_a_test_may_be_imported_from(tree_of):
    texts = {
        f"{ROOT}_above/_a.py": "import os\nfrom .._below._b import x\nfrom .._names import y\n",
        f"{ROOT}_below/_b.py": "from .._names import y\n",
        f"{ROOT}_below/_b_test.py": "from shardproof._above import _a\n",
        f"{ROOT}_names.py": "",
        "ci/x.py": "from shardproof._above import _a\n",
    }
    assert not list(python_layers.check(tree_of(texts)))
