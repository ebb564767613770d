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
            self.assertIn(path.stem, done.out)
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
            names = [line.partition("==")[0] for line in lines]
            self.assertIn(path.stem, names)
            self.assertNotIn("torch", names)
