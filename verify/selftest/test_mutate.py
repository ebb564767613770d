"""ci/mutate: what it refuses before it builds anything, and how it reads what a run left."""

import importlib.util

from command import REPOSITORY, CommandTest, snapshot

COMMAND = REPOSITORY / "ci" / "mutate"
INCONCLUSIVE, FAIL = 2, 3  # as a soak numbers verdicts


def mutants():
    """The module that reads results for ci/mutate."""
    spec = importlib.util.spec_from_file_location("mutants", COMMAND.with_name("mutants.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Arguments(CommandTest):
    def refused_patches(self, *words, names):
        before = snapshot(self.dir)
        done = self.run_process(COMMAND, *words)
        self.assert_exit(done, 2)
        self.assertEqual(len(done.err.splitlines()), 1, str(done))
        for name in names:
            self.assertIn(name, done.err)
        self.assertEqual(snapshot(self.dir), before, "something was written")

    def test_no_directory(self):
        self.refused_patches(names=["--help"])

    def test_a_directory_that_is_not_there(self):
        self.refused_patches("not-there", names=["not-there"])

    def test_a_directory_without_patches(self):
        self.write("patches/README", "none yet")
        self.refused_patches("patches", names=["patches", "*.patch"])

    def test_no_cases(self):
        self.write("patches/one.patch", "")
        self.refused_patches("--cases", "0", "patches", names=["--cases"])
        self.refused_patches("--cases=x", "patches", names=["--cases", "x"])

    def test_random_mistakes_and_patches(self):
        self.write("patches/one.patch", "")
        self.refused_patches("--random", "3", "patches", names=["not both"])

    def test_an_option_that_there_is_not(self):
        self.write("patches/one.patch", "")
        self.refused_patches("--case", "3", "patches", names=["--case"])


class Verdicts(CommandTest):
    def judged(self, code, document=None):
        """(verdict, by, where) of a run that ended with this code and left this document."""
        path = self.dir / "result.json"
        if document is not None:
            self.write("result.json", document)
        return mutants().judge(path, str(code), "simulated", "")[:3]

    def soak(self, *outcomes):
        """What a soak leaves that met cases of these (verdict, reason, properties, exit)."""
        cases = [
            {"case": {}, "numbered": True,
             "outcome": {"index": index, "verdict": verdict, "reason": reason,
                         "exit": "".join(ended),
                         "findings": [[one, "kind"] for one in properties]}}
            for index, (verdict, reason, properties, *ended) in enumerate(outcomes)
        ]  # fmt: skip
        failures = [case for case in cases if case["outcome"]["verdict"] == FAIL]
        unclear = [case for case in cases if case not in failures]
        return {"reason": "", "summary": {"failures": failures, "unclear": unclear}}

    def test_findings_of_generated_cases(self):
        document = self.soak((INCONCLUSIVE, "why", []), (FAIL, "", ["a.b", "a.b", "a.c"]))
        self.assertEqual(self.judged(1, document),
                         ("caught", "a.b, a.c", "simulated, first in case 1"))  # fmt: skip

    def test_a_case_that_took_its_process_along(self):
        verdict, by, _ = self.judged(
            3, self.soak((INCONCLUSIVE, "its process ended: signal 11", [], "signal 11"))
        )
        self.assertEqual((verdict, by), ("caught", "crash (signal 11)"))

    def test_a_case_that_did_not_end(self):
        verdict, by, _ = self.judged(
            3, self.soak((INCONCLUSIVE, "it did not end within 9 s", [], "hang"))
        )
        self.assertEqual((verdict, by), ("caught", "hang (it did not end within 9 s)"))

    def test_inconclusive_is_not_caught(self):
        verdict, by, _ = self.judged(3, self.soak((INCONCLUSIVE, "nothing was compared", [])))
        self.assertEqual((verdict, by), ("inconclusive", "nothing was compared"))

    def test_findings_of_one_case(self):
        document = {"findings": [{"property": "memory.host_peak"}], "properties": [], "case": {}}
        self.assertEqual(self.judged(1, document), ("caught", "memory.host_peak", "simulated"))

    def test_a_command_that_leaves_nothing(self):
        self.assertEqual(self.judged(0)[0], "pass")
        self.assertEqual(self.judged(77)[0], "pass")
        self.assertEqual(self.judged(124)[:2], ("caught", "hang (the command did not end)"))
        self.assertEqual(self.judged(139)[:2], ("caught", "crash (signal 11 of the command)"))
        self.assertEqual(self.judged(2)[:2], ("inconclusive", "exit code 2"))

    def test_unit_tests(self):
        log = "[  FAILED  ] ShardOf.Cuts (3 ms)\n[  FAILED  ] 1 test, listed below:\n" * 2
        of_unit = mutants().of_unit
        self.assertEqual(of_unit(log, "1"), ("caught", "unit ShardOf.Cuts"))
        self.assertEqual(of_unit("", "0"), ("pass", ""))
        self.assertEqual(of_unit("", "134"), ("caught", "unit: crash (signal 6)"))
        self.assertEqual(of_unit("", "124"), ("caught", "unit: hang (the tests did not end)"))
