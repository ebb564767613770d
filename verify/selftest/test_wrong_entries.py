"""audit of checkpoints in which one entry is wrong: the tensor or file of it is named."""

from pathlib import Path

from command import CommandTest

EXPECTED = {
    "one_place": (1, "'b': expected a place of its own, found that of 'a', byte 0 of"),
    "offset -5": (1, "'b': expected offset of at least 0, found -5"),
    "offset 1.5": (1, "'b': expected a field offset"),
    "offset x": (1, "'b': expected a field offset"),
    "offset None": (1, "'b': expected a field offset"),
    f"offset {10**30}": (1, "'b': expected offset of at least 0"),
    "version 3.pt": (0, "SOUND"),
    "version 99.pt": (2, "found 99, which is not known"),
    "version 0.pt": (2, "expected a format version from 1 to 10"),
    "version x.pt": (2, "expected a format version from 1 to 10"),
    "version .pt": (2, "expected a format version from 1 to 10"),
    "number.pt": (1, "expected tensors, found 1 value that is none"),
    "values.pt": (0, "SOUND"),
    "values": (1, "expected tensors, found 2 values that are none"),
}  # fmt: skip


class WrongEntries(CommandTest):
    labels = "selftest framework"
    timeout_s = 100

    def test_an_entry_that_is_wrong_is_named(self):
        save = Path(__file__).parent / "save_wrong_entries.py"
        self.assert_exit(self.run_script(save, self.dir, timeout=90), 0)
        for name, (code, said) in EXPECTED.items():
            with self.subTest(name):
                done = self.shardproof("audit", name)
                self.assert_exit(done, code)
                self.assertIn(said, done.out + done.err)
