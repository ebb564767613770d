"""The report's files exist, fit their schemas and need nothing from outside."""

import json
import os
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import jsonschema
from command import REPOSITORY, CommandTest, checkpoint


class Requests(HTMLParser):
    """Collects what a browser would fetch or run."""

    def __init__(self):
        super().__init__()
        self.found = []
        self.links = []  # to what lies beside the page, which only a click fetches

    def handle_starttag(self, tag, attributes):
        if tag in ("script", "iframe", "object", "embed"):
            self.found.append(tag)
        for name, value in attributes:
            if name in ("src", "href", "xlink:href", "action") and value:
                if tag == "a" and value.startswith("reproducers/"):
                    self.links.append(value)
                elif not value.startswith(("#", "data:")):
                    self.found.append(f"{tag} {name}={value}")


def validate(document, schema, part=None):
    path = REPOSITORY / "fixtures" / "schema" / schema
    loaded = json.loads(path.read_text(encoding="utf-8"))
    if part:
        loaded = {"$defs": loaded["$defs"], "$ref": f"#/$defs/{part}"}
    jsonschema.Draft202012Validator(loaded).validate(document)


class Report(CommandTest):
    labels = "selftest multi-rank"
    fixtures = "checkpoints"
    timeout_s = 120

    def report(self, code, *words):
        words = ["verify", "--checkpoint", checkpoint("llama-tied-small"), "--world", 3, *words]
        done = self.shardproof(*words, "--report", "out", "--json", "result.json")
        self.assert_exit(done, code)
        return self.dir / "out"

    def check(self, out, verdict):
        result = json.loads((out / "result.json").read_text(encoding="utf-8"))
        validate(result, "verdict.schema.json")
        validate(result["case"], "case.schema.json")
        self.assertEqual(result["verdict"], verdict)
        own = json.loads((self.dir / "result.json").read_text(encoding="utf-8"))
        self.assertEqual(own["findings"], result["findings"])
        page = (out / "report.html").read_text(encoding="utf-8")
        requests = Requests()
        requests.feed(page)
        self.assertEqual(requests.found, [])
        for link in requests.links:
            self.assertTrue((out / link).exists(), link)
        self.assertNotRegex(page, r"@import|url\(\s*['\"]?(?!#|data:)[a-z]")
        return result, page

    def test_json_goes_into_a_pipe_and_not_in_its_place(self):
        out = self.report(0)
        pipe = self.dir / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        self.assert_exit(self.shardproof("report", out, "--json", pipe), 0)
        self.assertTrue(pipe.is_fifo())
        self.assertEqual(json.loads(os.read(reader, 1 << 20))["verdict"], "pass")

    def test_a_pass(self):
        out = self.report(0)
        result, page = self.check(out, "pass")
        suite = ElementTree.parse(out / "junit.xml").getroot()
        cases = list(suite.iter("testcase"))
        self.assertEqual(len(cases), len(result["properties"]))
        self.assertEqual(list(suite.iter("failure")) + list(suite.iter("error")), [])
        for one in result["properties"]:
            self.assertIn(one["id"], page)

    def test_a_failure(self):
        out = self.report(1, "--inject", "file/flip@model.norm.weight:3")
        result, page = self.check(out, "fail")
        failed = [one["id"] for one in result["properties"] if one["verdict"] == "fail"]
        failures = list(ElementTree.parse(out / "junit.xml").getroot().iter("failure"))
        self.assertEqual(len(failures), len(failed))
        self.assertIn("model.norm.weight", ElementTree.tostring(failures[0], encoding="unicode"))
        self.assertIn("model.norm.weight", page)
        replay = re.search(r"shardproof replay \S+", result["findings"][0]["next_command"])
        self.assertTrue(replay, result["findings"][0]["next_command"])

    def test_inconclusive_is_an_error_in_junit_and_never_skipped(self):
        out = self.report(3, "--inject", "file/enospc@1000000")
        result, _ = self.check(out, "inconclusive")
        root = ElementTree.parse(out / "junit.xml").getroot()
        for kind, verdict in (("error", "inconclusive"), ("skipped", "skip")):
            expected = [one for one in result["properties"] if one["verdict"] == verdict]
            self.assertEqual(len(list(root.iter(kind))), len(expected))

    def test_evidence_fits_its_schema(self):
        evidence = self.report(0) / "evidence"
        validate(json.loads((evidence / "run.json").read_text()), "evidence.schema.json", "run")
        kinds = set()
        for stream in sorted(evidence.glob("*/*.jsonl")):
            for line in stream.read_text(encoding="utf-8").splitlines():
                record = json.loads(line)
                if (kind := (record["record"], len(record))) not in kinds:
                    kinds.add(kind)
                    validate(record, "evidence.schema.json", record["record"])
        self.assertGreater(len(kinds), 8)

    def test_one_finding_can_be_asked_for_by_property(self):
        document = self.judged("verify", "--bug", "sharding.shards_swapped", "--property",
                               "sharding.ranks_match_rank0", "--property", "loading.ties_kept",
                               code=1)  # fmt: skip
        judged = [one["id"] for one in document["properties"]]
        self.assertEqual(sorted(judged), ["loading.ties_kept", "sharding.ranks_match_rank0"])
