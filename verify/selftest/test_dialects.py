"""compare --dequantised and audit: dialects that the real libraries wrote, and mistakes in them."""

import json
import sys
from pathlib import Path

from command import CommandTest

SAVE = Path(__file__).parent / "save_dialects.py"


class Dialects(CommandTest):
    labels = "selftest framework nightly"
    timeout_s = 900

    def hold(self, fewest, *python):
        cache = str(self.dir / "cache")  # which torch makes as it is imported
        done = self.run_process(
            *python, SAVE, self.dir / "made", timeout=600, TORCHINDUCTOR_CACHE_DIR=cache
        )
        self.assert_exit(done, 0)
        cases = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
        self.assertGreater(len(cases), fewest)
        for case in cases:
            with self.subTest(case["name"], against=case["against"]):
                self.hold_one(case, f"made/{case['against']}", f"made/{case['name']}")

    def hold_one(self, case, a, b):
        document = self.judged("compare", "--dequantised", a, b, code=1 if case["wrong"] else 0)
        if case["wrong"]:
            worst = document["differences"][0]
            self.assertEqual(worst["tensor"], case["tensor"])
            self.assertIn(case["wrong"], worst["explanation"])
            return
        self.assertLessEqual(document["worst_of_bound"], 1)
        self.assertTrue(document["units"])
        self.assert_exit(self.shardproof("audit", b, "--finite"), 0)

    def test_those_that_transformers_and_compressed_tensors_write(self):
        self.hold(40, sys.executable)

    def test_those_of_bitsandbytes_torchao_and_gguf(self):
        self.hold(60, self.python_of("bitsandbytes"))
