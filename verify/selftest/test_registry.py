"""What is on disk, what `list` shows and what ctest runs are the same."""

import json
import os
import re
import subprocess

import registry
from command import REPOSITORY, CommandTest
from subject import literal

PYTHON_WITH_PHASES = (
    "verify/python/shardproof/_phases.py",
    "verify/report/report_memory.py",
    "verify/reproduce/plans.py",
)


class Registry(CommandTest):
    def listed_in_order(self, what):
        return [one["name"] for one in json.loads(self.shardproof("list", what, "--json").out)]

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

    def test_phases_that_python_names_are_listed(self):
        """Each by itself: the report and the reproducers are copied to where the package is not."""
        names = self.listed_in_order("phases")
        self.assertEqual(names, registry.listed_ids(self.shardproof("list", "phases").out))
        self.assertEqual(len(names), len(set(names)), "a phase twice")
        for path in PYTHON_WITH_PHASES:
            named = registry.constants_of(REPOSITORY / path)
            self.assertGreater(len(named), 0, path)
            self.assertEqual({name: name.lower() for name in named}, named, path)
            self.assertEqual(set(named.values()) - set(names), set(), path)

    def test_the_schema_of_evidence_has_the_listed_phases(self):
        schema = json.loads((REPOSITORY / "fixtures/schema/evidence.schema.json").read_text())
        phase = schema["$defs"]["run"]["properties"]["phases"]["items"]["properties"]["name"]
        self.assertEqual(phase["enum"], self.listed_in_order("phases"))

    def test_every_listed_bug_is_of_a_domain_that_is_a_ctest(self):
        named = {name.removeprefix("bug.") for name in self.ctests() if name.startswith("bug.")}
        domains = {bug.partition(".")[0] for bug in self.listed("bugs")}
        self.assertEqual(named, domains)

    def test_every_listed_property_is_a_ctest(self):
        named = self.ctests()
        properties = json.loads(self.shardproof("list", "properties", "--json").out)
        self.assertEqual([one["id"] for one in properties], self.listed("properties"))
        for one in properties:
            tests = one["killed_by"] if one["only_subjects"] else [f"property.{one['id']}"]
            for test in tests:
                self.assertTrue(test in named, f"there is no ctest {test}")

    def test_every_planted_mistake_is_of_a_known_kind(self):
        done = self.shardproof("list", "bugs", "--markdown")
        self.assert_exit(done, 0)
        rows = dict(re.findall(r"^\| ([A-Z]+-\w+|none) \| .+ \| (.*) \|$", done.out, re.MULTILINE))
        self.assertEqual(len(rows), len(done.out.splitlines()) - 2, "a kind twice")
        named = [bug for row in rows.values() for bug in re.findall(r"`([^`]+)`", row)]
        self.assertEqual(sorted(named), self.listed("bugs"))
        subjects = [
            literal(path, "EXPECT") for path in (REPOSITORY / "fixtures" / "subjects").glob("*.py")
        ]
        kinds = {one["mistake"] for one in subjects if "mistake" in one}
        self.assertLessEqual(kinds, set(rows))
        bare = {kind for kind, row in rows.items() if row in ("", "-")} - kinds
        self.assertEqual(bare, set(), "kinds of which nothing is planted")

    def test_the_table_of_faults_names_every_fault(self):
        done = self.shardproof("list", "faults", "--markdown")
        self.assert_exit(done, 0)
        named = re.findall(r"^\| `([^`]+)` \| .+ \| .+ \| `\1@.+`: .+ \|$", done.out, re.MULTILINE)
        self.assertEqual(named, self.listed("faults"))

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
                    path = (
                        REPOSITORY / "fixtures" / "subjects" / f"{bug.removeprefix('subject.')}.py"
                    )
                    self.assertEqual(literal(path, "EXPECT")["property"], property_id)
                    continue
                self.assertIn(property_id, bugs.get(bug, []), f"{bug} does not name {property_id}")
        for bug, names in bugs.items():
            self.assertTrue(names, f"{bug} names no property")
            self.assertLessEqual(set(names), set(killers), bug)
