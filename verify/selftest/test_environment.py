"""ci/environment says what it makes environments for, and refuses the rest."""

from command import REPOSITORY, CommandTest

COMMAND = REPOSITORY / "ci" / "environment"
PINS = REPOSITORY / "ci" / "requirements" / "environments"


class Environment(CommandTest):
    labels = "selftest process"

    def test_names_and_refusals(self):
        done = self.run_process(COMMAND, "--help")
        self.assert_exit(done, 0)
        for path in PINS.glob("*.txt"):
            is_release = path.stem.rpartition("-")[2][0].isdigit()
            self.assertEqual(f" {path.stem} " in f" {' '.join(done.out.split())} ", not is_release)
        for words, said in (
            ((), "expected the name of a package"),
            (("nothing",), "no pins for 'nothing'"),
            (("ray", "transformer-engine"), "transformer-engine cannot be had here: "),
            (("ray==1;2",), "'ray==1;2' is not NAME or NAME==VERSION"),
        ):
            done = self.run_process(COMMAND, *words)
            self.assertEqual(done.code, 2, str(done))
            self.assertIn(said, done.err)

    def test_pins_are_of_releases(self):
        """Without torch, which is the project's own."""
        for path in PINS.glob("*.txt"):
            lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
            self.assertTrue(all(line.count("==") == 1 for line in lines), path)
            pins = dict(line.split("==") for line in lines)
            name, _, version = path.stem.rpartition("-")
            if version[:1].isdigit():  # of another release than the one of NAME.txt
                self.assertEqual(pins.get(name), version, path)
                self.assertTrue((PINS / f"{name}.txt").exists(), path)
            else:
                self.assertIn(path.stem, pins)
            self.assertNotIn("torch", pins)
