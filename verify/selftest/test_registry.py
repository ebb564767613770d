"""What is on disk, what `list` shows and what ctest runs are the same."""

import json
import os
import re
import subprocess

import registry
from command import REPOSITORY, CommandTest
from subject import expectation


def is_of_subjects(killers):
    return bool(killers) and all(name.startswith("subject.") for name in killers)


class Registry(CommandTest):
    def listed(self, what):
        done = self.shardproof("list", what)
        self.assert_exit(done, 0)
        ids = registry.listed_ids(done.out)
        self.assertGreater(len(ids), 0)
        self.assertEqual(len(ids), len(set(ids)), "an id twice")
        return sorted(ids)

    def ctests(self):
        """The names of all ctests of this build."""
        words = ["ctest", "--test-dir", os.environ["SHARDPROOF_BUILD"], "--show-only=json-v1"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return {test["name"] for test in json.loads(done.stdout)["tests"]}

    def test_properties_on_disk_are_listed(self):
        self.assertEqual(self.listed("properties"), registry.properties_on_disk())

    def test_bugs_on_disk_are_listed(self):
        self.assertEqual(self.listed("bugs"), registry.bugs_on_disk())

    def test_faults_on_disk_are_listed(self):
        self.assertEqual(self.listed("faults"), registry.faults_on_disk())

    def test_every_listed_bug_is_a_ctest(self):
        named = {name.removeprefix("bug.") for name in self.ctests() if name.startswith("bug.")}
        self.assertEqual(sorted(named), self.listed("bugs"))

    def test_every_listed_property_is_a_ctest(self):
        named = self.ctests()
        killers = registry.listed_killers(self.shardproof("list", "properties").out)
        for property_id in self.listed("properties"):
            tests = [f"property.{property_id}"]
            if is_of_subjects(killers[property_id]):  # the reference has nothing that it is about
                tests = killers[property_id]
            for test in tests:
                self.assertTrue(test in named, f"there is no ctest {test}")

    def test_the_table_of_kinds_names_every_bug_and_nothing_else(self):
        text = (REPOSITORY / "fixtures" / "KINDS.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| ([A-Z]+-\w+) \| .+ \| (.+) \|$", text, re.MULTILINE)
        self.assertEqual((len(rows), len({kind for kind, _ in rows})), (44, 44))
        besides = re.search(r"^Besides, of no such kind: .*$", text, re.MULTILINE)
        named = [name for planted in [*(planted for _, planted in rows), besides[0]]
                 for name in re.findall(r"`([^`]+)`", planted)]  # fmt: skip
        self.assertEqual(len(named), len(set(named)), "planted twice")
        self.assertEqual(sorted(name for name in named if not name.startswith("subject.")),
                         self.listed("bugs"))  # fmt: skip
        for name in named:
            path = REPOSITORY / "fixtures" / "subjects" / f"{name.removeprefix('subject.')}.py"
            self.assertTrue(not name.startswith("subject.") or path.is_file(), name)
        for kind, planted in rows:
            self.assertTrue(planted == "-" or "`" in planted, kind)

    def test_every_property_has_a_bug_that_it_alone_must_catch(self):
        killers = registry.listed_killers(self.shardproof("list", "properties").out)
        bugs = registry.listed_bugs(self.shardproof("list", "bugs").out)
        self.assertEqual(sorted(killers), self.listed("properties"))
        for property_id, names in killers.items():
            if property_id == "fault.every_fault_fires":
                continue  # it is about faults, and selftest.canaries has one that never fires
            self.assertTrue(names, f"{property_id} names no bug")
            for bug in names:
                if bug.startswith("subject."):
                    path = REPOSITORY / "fixtures" / "subjects" / f"{bug.removeprefix('subject.')}.py"
                    self.assertEqual(expectation(path)["property"], property_id)
                    continue
                self.assertIn(property_id, bugs.get(bug, []), f"{bug} does not name {property_id}")
        for bug, names in bugs.items():
            self.assertTrue(names, f"{bug} names no property")
            self.assertLessEqual(set(names), set(killers), bug)
