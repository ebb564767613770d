#!/usr/bin/env python3
"""Makes the checkpoints that the self-tests share: make_checkpoints.py DIRECTORY

Written with the real Transformers by fixtures/checkpoints/make.py; those that are there are kept.
"""

import subprocess
import sys
from pathlib import Path

MAKER = Path(__file__).resolve().parents[2] / "fixtures" / "checkpoints" / "make.py"


def main(directory):
    for preset in ("qwen3-small", "llama-tied-small"):
        out = Path(directory) / preset
        if not out.exists():
            subprocess.run([sys.executable, MAKER, "--preset", preset, out], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
