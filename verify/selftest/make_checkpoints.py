#!/usr/bin/env python3
"""Makes the checkpoints that the self-tests share: make_checkpoints.py DIRECTORY

Written with the real Transformers by fixtures/checkpoints/make.py, all presets but bench in one
process, since importing Transformers takes seconds. Those that are there are kept, unless the
scripts that made them have changed.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "fixtures" / "checkpoints"
sys.path.insert(0, str(SCRIPTS))

from presets import SMALL  # noqa: E402


def main(directory):
    directory = Path(directory)
    recipe = hashlib.sha256()
    for script in sorted(SCRIPTS.glob("*.py")):
        recipe.update(script.read_bytes())
    made_by = directory / ".made-by"
    if not made_by.exists() or made_by.read_text() != recipe.hexdigest():
        shutil.rmtree(directory, ignore_errors=True)
    missing = [preset for preset in SMALL if not (directory / preset).exists()]
    if missing:
        words = [word for preset in missing for word in ("--preset", preset)]
        subprocess.run(
            [sys.executable, SCRIPTS / "make.py", *words, "--into", directory], check=True
        )
    made_by.write_text(recipe.hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
