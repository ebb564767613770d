"""The Markdown reports of findings: what a maintainer asks for is in them, and what is hidden."""

import json
import pathlib
import re
import socket
import sys
import tempfile
import unittest

import environment
import redact
import reports


def result():
    """The document of a run with one finding, small."""
    finding = {
        "property": "loading.equals_source", "kind": "differs", "class": "code", "phase": "values",
        "fingerprint": "0123456789abcdef", "stage": "ready", "tensor": "a|b", "ranks": [1],
        "world_size": 4, "message": "a|b is 0.25 (0x3e800000)", "expected": "0.5 (0x3f000000)",
        "seen": "0.25 (0x3e800000)", "explanation": "half of 0.5", "hosts": [], "coordinates": [],
    }  # fmt: skip
    properties = [
        {"id": "loading.equals_source", "verdict": "fail", "comparisons": 9, "reason": "",
         "claim": "c", "source": "s",
         "reads": [{"phases": ["values", "resume"], "stages": ["ready"], "records": ""}]},
        {"id": "loading.ties_kept", "verdict": "pass", "comparisons": 1200, "reason": ""},
        {"id": "memory.host_peak", "verdict": "inconclusive", "comparisons": 0,
         "reason": "saw 0.125 twice"},
    ]  # fmt: skip
    return {
        "findings": [finding], "properties": properties, "faults": [], "redacted": "",
        "compared": {"comparisons": 1209, "ranks": 4, "stages": ["ready"], "held": [],
                     "phases": ["values", "resume"], "skipped_phases": []},
        "case": {"mesh": [{"name": "dp_shard", "size": 4}], "seed": 7, "strategy": "plain"},
        "versions": {"torch": "2.15.0"},
    }  # fmt: skip


def rendered(document, test, **more):
    """The text of the report of its one finding."""
    folder = tempfile.TemporaryDirectory()
    test.addCleanup(folder.cleanup)
    (group,) = reports.name_groups([reports.Group(list(document["findings"]))])
    name = reports.write_report(
        folder.name, "reference.md.j2", group, document, subject="reference", python="",
        again={"0123456789abcdef"}, **more,
    )  # fmt: skip
    return pathlib.Path(folder.name, name).read_text()


class ReportsTest(unittest.TestCase):
    def test_a_report_says_what_was_expected_what_holds_and_where_it_ran(self):
        text = rendered(result(), self, environment=environment.collect(), script="print(1)\n")
        for part in ("| expected | 0.5 (0x3f000000) |", "| seen | 0.25 (0x3e800000) |",
                     "- ranks 0, 2, 3 of 4 do not show this finding",
                     "- the same property has no finding in phase resume",
                     "- loading.ties_kept holds (1,200)",
                     "## Environment", "PyTorch version: ", "Python version: ",
                     "~~~~~~python\nprint(1)\n", "`0123456789abcdef`"):  # fmt: skip
            self.assertIn(part, text)
        self.assertNotIn("Hidden in this report", text)

    def test_without_values_it_says_what_was_hidden(self):
        document = result()
        redact.redact(document)
        text = rendered(document, self, output="FAIL rank 1: 0.25 is not 0.5")
        for value in ("0.5", "0x3f000000", "0.25", "0x3e800000", "0.125", "half"):
            self.assertNotIn(value, text)
        self.assertIn("| expected | (hidden) |", text)
        self.assertIn("# loading.equals_source: differs (values, ready, a|b)", text)
        self.assertIn(f"Hidden in this report: {redact.WHAT}.", text)

    def test_an_environment_that_cannot_be_asked_is_told(self):
        ((name, why),) = reports.environment_of("/nonexistent/python")
        self.assertEqual((name, why), ("Environment", "could not be asked for (FileNotFoundError)"))


class EnvironmentTest(unittest.TestCase):
    def test_fields_without_paths_and_host_names(self):
        fields = dict(reports.environment_of(sys.executable))
        for name in ("PyTorch version", "OS", "Libc version", "Python platform", "CPU",
                     "Versions of relevant libraries"):  # fmt: skip
            self.assertTrue(fields[name], name)
        text = json.dumps(fields)
        self.assertNotRegex(text, r'(^|[ "])/[a-z]+/')
        self.assertNotIn(f" {socket.gethostname()} ", text)

    def test_places_are_left_out(self):
        host = socket.gethostname()
        text = environment.without_places(
            f"x @ file:///data/u/x /data/a/b.so on {host}, 1/2 of 3.4"
        )
        self.assertNotIn("data", text)
        self.assertIn("1/2 of 3.4", text)
        if len(host) > 2:
            self.assertIsNone(re.search(rf"\b{re.escape(host)}\b", text))


if __name__ == "__main__":
    unittest.main()
