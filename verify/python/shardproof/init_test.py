import subprocess
import sys
from pathlib import Path

import pytest

import shardproof


def test_importing_it_does_not_import_torch():
    code = "import shardproof, sys; sys.exit('torch' in sys.modules)"
    environment = {"PYTHONPATH": str(Path(shardproof.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_what_it_says_it_has_is_there():
    assert all(getattr(shardproof, name) is not None for name in shardproof.__all__)
    with pytest.raises(AttributeError, match="no attribute 'chekc'"):
        shardproof.chekc  # noqa: B018
