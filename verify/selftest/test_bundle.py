"""A report packed for somebody else: what is in it, what is not, and that it can be judged and run
again."""

import json
import re
import tarfile

from command import REPOSITORY, CommandTest


class Bundle(CommandTest):
    labels = "selftest"
    timeout_s = 120

    def setUp(self):
        super().setUp()
        smoke = REPOSITORY / "fixtures" / "cases" / "smoke.json"
        done = self.shardproof("verify", "--case", smoke, "--inject", "file/flip@embed.weight:3",
                               "--report", "report")  # fmt: skip
        self.assert_exit(done, 1)

    def unpacked(self, *words):
        """The folder that the bundle holds."""
        done = self.shardproof("report", "report", "--bundle", "out.tar.gz", *words)
        self.assert_exit(done, 0)
        self.assertEqual(done.out, "out.tar.gz\n")
        with tarfile.open(self.dir / "out.tar.gz") as archive:
            archive.extractall(self.dir / "unpacked")
        return self.dir / "unpacked" / "out"

    def test_what_is_packed_can_be_judged_and_run_again(self):
        folder = self.unpacked()
        for name in ("README.txt", "result.json", "report.html", "reproducers/case.json"):
            self.assertTrue((folder / name).is_file(), name)
        self.assertFalse((folder / "evidence" / "saved_values").exists())
        self.assert_exit(self.shardproof("report", folder), 1)
        self.assert_exit(self.shardproof("replay", folder / "evidence"), 1)

    def test_reports_of_findings_without_values(self):
        smoke = REPOSITORY / "fixtures" / "cases" / "smoke.json"
        words = ("verify", "--case", smoke, "--inject", "file/flip@embed.weight:3")
        self.refused(*words, "--redact", names=["--redact", "--report"])
        self.assert_exit(self.shardproof(*words, "--report", "hidden", "--redact"), 1)
        (plain,) = (self.dir / "report" / "reproducers").glob("*.md")
        (hidden,) = (self.dir / "hidden" / "reproducers").glob("*.md")
        values = set(re.findall(r"0x[0-9a-f]{4,}|\d+\.\d{4,}", plain.read_text()))
        self.assertTrue(values)
        text = hidden.read_text()
        self.assertFalse([value for value in values if value in text])
        self.assertIn("Hidden in this report: expected and seen values", text)
        for part in ("## Environment", "PyTorch version: ", "## What was tried and passes"):
            self.assertIn(part, text)

    def test_without_values_the_verdict_is_the_same(self):
        values = set()
        for path in (self.dir / "report" / "evidence").rglob("*.json*"):
            values |= set(re.findall(r'"hex": ?"([0-9a-f]{16,})"', path.read_text()))
        before = json.loads((self.dir / "report" / "result.json").read_text())["findings"]
        for finding in before:
            for what in (finding.get("expected", ""), finding.get("seen", "")):
                values |= set(re.findall(r"0x[0-9a-f]{4,}|\d+\.\d{4,}", what))
        self.assertTrue([value for value in values if value.startswith("0x")])
        folder = self.unpacked("--redact")
        for path in folder.rglob("*"):
            text = path.read_text() if path.is_file() else ""
            self.assertFalse([value for value in values if value in text], path)
        findings = json.loads((folder / "result.json").read_text())["findings"]
        self.assertEqual(
            [one["fingerprint"] for one in findings], [one["fingerprint"] for one in before]
        )
        for finding in findings:
            self.assertNotIn("expected", finding)
            self.assertIn("values left out", finding["message"])
        self.assert_exit(self.shardproof("report", folder), 1)

    def test_what_is_no_report_or_cannot_be_written_is_bad_input(self):
        self.refused("report", "nowhere", "--bundle", "x.tar.gz", names=["nowhere", "result.json"])
        self.refused("report", "report", "--bundle", ".", names=["found a directory"])
        self.refused(
            "report", "report", "--bundle", "x.tar.gz", "--json", "y.json", names=["--json"]
        )
        self.refused("report", "report", "--bundle", "no/such/x.tar.gz", names=["no/such/x.tar.gz"])
        self.refused(
            "report", "report", "--bundle", "report/x.tar.gz", names=["report/x.tar.gz", "lie in"]
        )
        self.refused("report", "report", "--redact", names=["--redact"])
