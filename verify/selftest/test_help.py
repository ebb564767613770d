"""Help, the catalogue and usage errors."""

from command import REPOSITORY, CommandTest


class Help(CommandTest):
    def test_every_subcommand_explains_itself(self):
        subcommands = ([], ["verify"], ["replay"], ["compare"], ["audit"], ["seal"], ["crashtest"],
                       ["clean"], ["list"], ["list", "properties"], ["list", "bugs"],
                       ["list", "faults"], ["list", "fields"])  # fmt: skip
        for words in subcommands:
            with self.subTest(" ".join(words)):
                done = self.shardproof(*words, "--help")
                self.assert_exit(done, 0)
                self.assertIn("Usage: shardproof", done.out)
                self.assertEqual(done.err, "")

    def test_help_names_the_exit_codes(self):
        help_text = " ".join(self.shardproof("--help").out.split())
        for code in ("0 pass", "1 fail", "2 usage or bad input", "3 inconclusive", "4 hang",
                     "5 the verifier itself is broken", "77 skipped"):  # fmt: skip
            self.assertIn(code, help_text)
        for words in (["verify"], ["replay"], ["shrink"], ["report"], ["compare"], ["audit"],
                      ["seal"], ["crashtest"], ["clean"], ["list"]):  # fmt: skip
            self.assertIn("Exit codes: 0 ", self.shardproof(*words, "--help").out, words)

    def test_help_of_verify_names_every_option(self):
        text = self.shardproof("verify", "--help").out
        for option in ("checkpoint", "case", "world", "strategy", "inject", "report", "json", "bug",
                       "property", "save-to", "deadline"):  # fmt: skip
            self.assertIn(f"--{option} ", text)

    def test_fields_are_listed_with_their_options_and_as_a_schema(self):
        lines = self.shardproof("list", "fields").out.splitlines()
        self.assertIn("training/keep", lines)
        self.assertIn("model/tensors/N/rope/rope_theta", lines)
        help_of_verify = self.shardproof("verify", "--help").out
        options = [line.rsplit("option: ")[1] for line in lines if "option: " in line]
        self.assertGreater(len(options), 20)
        for option in options:
            self.assertIn(f"  {option} ", help_of_verify)
        schema = self.shardproof("list", "fields", "--schema").out
        file = REPOSITORY / "fixtures" / "schema" / "case.schema.json"
        self.assertEqual(schema, file.read_text())

    def test_help_is_grouped_and_fits_a_terminal(self):
        doors = self.shardproof("--help").out
        for door, command in (("You have checkpoints", "compare"), ("You have a job", "report"),
                              ("You have a framework", "verify"),
                              ("You have a program", "crashtest")):  # fmt: skip
            self.assertIn(f"  {command} ", doors[doors.index(door) :].split("\n\n")[0])
        for words in ([], ["verify"], ["replay"], ["shrink"], ["report"], ["compare"], ["audit"],
                      ["seal"], ["crashtest"], ["list"]):  # fmt: skip
            with self.subTest(" ".join(words)):
                text = self.shardproof(*words, "--help").out
                self.assertNotIn("Excludes:", text)
                self.assertRegex(text, r"Examples?:\n  shardproof ")
                self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def test_help_of_verify_explains_the_axes_of_a_mesh(self):
        text = " ".join(self.shardproof("verify", "--help").out.split())
        for axis in ("dp_shard cuts", "tp cuts", "ep gives", "cp (context", "pp (pipeline",
                     "ep=2@dp_shard", "ep=4@dp_shard+cp"):  # fmt: skip
            self.assertIn(axis, text)

    def test_former_names_are_not_shown(self):
        text = self.shardproof("verify", "--help").out
        self.assertNotIn("--as-stated", text)
        self.assertNotRegex(text, r"\bapart\b")

    def test_a_wrong_combination_is_told(self):
        for words in (["--world", 2, "--mesh", "2x2"], ["--generate", 5, "--checkpoint", "x"],
                      ["--generate", 5, "--judge-faults"],
                      ["--bugs", "all", "--property", "x"]):  # fmt: skip
            with self.subTest(words):
                self.usage_error("verify", *words, names=" cannot be combined with ")
        self.usage_error(
            "verify", "--jobs", 2, names="expected --generate N or --minutes M with it"
        )

    def usage_error(self, *words, names):
        done = self.shardproof(*words)
        self.assert_exit(done, 2)
        self.assertEqual(done.out, "")
        self.assertIn(names, done.err)
        self.assertLessEqual(len(done.err.splitlines()), 2, str(done))

    def test_no_subcommand(self):
        self.usage_error(names="subcommand")

    def test_unknown_subcommand(self):
        self.usage_error("verfy", names="verfy")

    def test_unknown_option_suggests_the_nearest(self):
        self.usage_error(
            "verify", "--wrld", "2", names="unknown option '--wrld': did you mean --world?"
        )
        self.usage_error(
            "verify", "--worldd=2", names="unknown option '--worldd': did you mean --world?"
        )
        # A missing argument is not told in its place.
        self.usage_error(
            "audit", "--fnite", names="unknown option '--fnite': did you mean --finite?"
        )
        self.usage_error("list", "bugs", "--markdwn", names="'shardproof list bugs --help'")

    def test_unknown_option_that_is_near_no_other(self):
        done = self.shardproof("verify", "--xyzzy")
        self.assert_exit(done, 2)
        self.assertIn("unknown option '--xyzzy'; 'shardproof verify --help' shows", done.err)
        self.assertNotIn("did you mean", done.err)

    def test_an_option_before_the_subcommand(self):
        self.usage_error(
            "--world", 4, "verify", names="unknown option '--world'; 'shardproof --help'"
        )

    def test_one_argument_too_many(self):
        self.usage_error("audit", "a", "b", names="unexpected argument 'b'")

    def test_number_expected(self):
        self.usage_error("verify", "--checkpoint", "x", "--world", "two", names="--world")

    def test_compare_with_one_checkpoint(self):
        self.usage_error("compare", "a", names="B")
