"""What a pipeline decides by: known failures, how much was compared, a page and metrics."""

import json
import os
import re
import time
import xml.etree.ElementTree as ElementTree

import jsonschema
from checkpoints import f32, write_safetensors
from command import REPOSITORY, CommandTest, snapshot, without_device
from markdown_it import MarkdownIt

SMOKE = REPOSITORY / "fixtures" / "cases" / "smoke.json"
FLIP = ("--inject", "file/flip@embed.weight:3")
SAMPLE = re.compile(
    r'(shardproof_\w+)\{(\w+="(?:[^"\\\n]|\\[\\"n])*"(?:,\w+="(?:[^"\\\n]|\\[\\"n])*")*)\} (\S+)'
)


def rendered(text):
    """The HTML that Markdown with tables becomes."""
    return MarkdownIt("commonmark").enable("table").render(text)


def samples(text):
    """{(name, labels): value} of Prometheus' text format, each family told before its samples."""
    found, family = {}, ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {family} gauge", line
        else:
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert name == family and (name, labels) not in found, line
            found[name, labels] = float(value)
    return found


def known(*which, expires="2099-12-31"):
    """The document of a list of known failures."""
    return {"schema": 1, "known": [
        {**one, "owner": "ann", "issue": "#7", "expires": expires} for one in which
    ]}  # fmt: skip


class Known(CommandTest):
    labels = "selftest multi-rank"
    timeout_s = 120

    def setUp(self):
        super().setUp()
        found = self.judged("verify", "--case", SMOKE, *FLIP, code=1)["findings"]
        self.prints = sorted({one["fingerprint"] for one in found})

    def entries(self, count=None):
        return [{"fingerprint": one} for one in self.prints[:count]]

    def test_all_known_passes_and_every_report_says_so(self):
        self.write("known.json", known(*self.entries()))
        done = self.shardproof("verify", "--case", SMOKE, *FLIP, "--known", "known.json",
                               "--report", "out", "--summary", "out/summary.md")  # fmt: skip
        self.assert_exit(done, 0)
        self.assertRegex(done.out.splitlines()[0], r"^shardproof: pass, \d+ known findings: ")
        self.assertIn("KNOWN loading.equals_source", done.out)
        self.assertNotIn("FAIL", done.out)
        result = json.loads((self.dir / "out" / "result.json").read_text())
        schema = json.loads((REPOSITORY / "fixtures/schema/verdict.schema.json").read_text())
        jsonschema.Draft202012Validator(schema).validate(result)
        self.assertEqual((result["verdict"], result["exit_code"]), ("pass", 0))
        self.assertEqual(result["gate"]["known"], len(result["findings"]))
        self.assertTrue(all(one["known"]["owner"] == "ann" for one in result["findings"]))
        suite = ElementTree.parse(self.dir / "out" / "junit.xml").getroot()
        self.assertEqual(suite.get("failures"), "0")
        self.assertIn("known failure (ann, #7, until 2099-12-31)",
                      (self.dir / "out" / "junit.xml").read_text())  # fmt: skip
        page = (self.dir / "out" / "report.html").read_text()
        self.assertRegex(page, r"PASS: \d+ known findings, no other")
        summary = (self.dir / "out" / "summary.md").read_text()
        self.assertIn("Known findings, which do not fail", summary)

    def test_a_new_one_fails_and_is_told_first(self):
        self.write("known.json", known(*self.entries(-1)))
        done = self.shardproof("verify", "--case", SMOKE, *FLIP, "--known", "known.json")
        self.assert_exit(done, 1)
        self.assertRegex(done.out.splitlines()[0], r"fail, \d+ findings, \d+ of them known: ")
        self.assertTrue(done.out.splitlines()[1].startswith("FAIL "), str(done))
        self.assertIn(f"fingerprint {self.prints[-1]}, kind ", done.out)

    def test_fingerprints_are_those_of_other_seeds_sizes_and_elements(self):
        for words in (("--seed", 12), ("--world", 3)):
            found = self.judged("verify", "--case", SMOKE, "--inject", "file/flip@embed.weight:7",
                                *words, code=1)["findings"]  # fmt: skip
            self.assertEqual(sorted({one["fingerprint"] for one in found}), self.prints)

    def test_expired_fails_and_says_so(self):
        self.write("known.json", known(*self.entries(), expires="2020-01-01"))
        done = self.shardproof("verify", "--case", SMOKE, *FLIP, "--known", "known.json")
        self.assert_exit(done, 1)
        self.assertIn("has expired, so it fails (ann, #7, until 2020-01-01)", done.out)
        self.assertIn("expired   ann, #7, until 2020-01-01", done.out)

    def test_what_no_longer_occurs_is_told(self):
        self.write("known.json", known(*self.entries(1)))
        done = self.shardproof("verify", "--case", SMOKE, "--known", "known.json")
        self.assert_exit(done, 0)
        self.assertIn(f"1 known failure did not occur in this run: {self.prints[0]}", done.out)

    def test_evidence_that_is_judged_again_is_gated_too(self):
        self.write("known.json", known(*self.entries()))
        self.assert_exit(self.shardproof("verify", "--case", SMOKE, *FLIP, "--report", "out"), 1)
        for words in (("report", "out"), ("replay", "out")):
            self.assert_exit(self.shardproof(*words, "--known", "known.json"), 0)

    def test_a_bad_list_is_one_line(self):
        self.write("date.json", known(*self.entries(1), expires="2026-02-30"))
        self.write("twice.json", known(*self.entries(1), *self.entries(1)))
        self.write("key.json", known({"fingerprint": self.prints[0], "until": "x"}))
        for file, words in (("date.json", "/known/0/expires"), ("twice.json", "/known/1"),
                            ("key.json", "until"), ("none.json", "cannot be read")):  # fmt: skip
            for command in (("verify", "--case", SMOKE), ("compare", SMOKE, SMOKE)):
                self.refused(*command, "--known", file, names=["--known", file, words])
        self.refused("verify", "--generate", 3, "--known", "date.json", names=["--known"])


class KnownHang(CommandTest):
    labels = "selftest multi-rank timed"
    timeout_s = 120

    def test_a_hang_is_never_known(self):
        words = ("verify", "--case", SMOKE, "--inject", "rank/stop@1@loaded", "--deadline", 3)
        done = self.shardproof(*words, "--transport", "gloo", "--json", "a.json")
        self.assert_exit(done, 4)
        found = json.loads((self.dir / "a.json").read_text())["findings"]
        prints = sorted({one["fingerprint"] for one in found})
        self.write("known.json", known(*({"fingerprint": one} for one in prints)))
        done = self.shardproof(*words, "--transport", "gloo", "--known", "known.json")
        self.assert_exit(done, 4)
        self.assertIn("always fails", done.out)


class Enough(CommandTest):
    labels = "selftest multi-rank"
    timeout_s = 120

    def test_less_than_before_is_inconclusive(self):
        words = ("verify", "--case", SMOKE)
        self.assert_exit(self.shardproof(*words, "--json", "then.json"), 0)
        self.assert_exit(self.shardproof(*words, "--baseline", "then.json"), 0)
        done = self.shardproof(*words, "--property", "loading.equals_source",
                               "--baseline", "then.json", "--report", "out")  # fmt: skip
        self.assert_exit(done, 3)
        self.assertIn("compared in the baseline, but not now: ", done.out)
        junit = ElementTree.parse(self.dir / "out" / "junit.xml").getroot()
        self.assertEqual((junit.get("errors"), junit.get("failures")), ("1", "0"))
        done = self.shardproof(*words, "--min-comparisons", 10**6)
        self.assert_exit(done, 3)
        self.assertIn("--min-comparisons asks for 1,000,000", done.out)

    def test_a_skip_compares_nothing(self):
        if not without_device("cuda"):
            self.skipTest("this machine has a GPU, so that nothing is skipped")
        words = ("verify", "--case", SMOKE, "--device", "cuda", "--world", 1)
        self.assert_exit(self.shardproof(*words), 77)
        done = self.shardproof(*words, "--min-comparisons", 1, "--summary", "s.md")
        self.assert_exit(done, 3)
        self.assertIn("inconclusive", (self.dir / "s.md").read_text())

    def test_generated_cases(self):
        words = ("verify", "--generate", 3, "--seed", 5)
        done = self.shardproof(*words, "--json", "then.json", "--summary", "s.md", "--prom", "m")
        self.assert_exit(done, 0)
        self.assertIn("verify: pass", (self.dir / "s.md").read_text())
        self.assertTrue(samples((self.dir / "m").read_text()))
        self.assert_exit(self.shardproof(*words, "--baseline", "then.json"), 0)
        self.assert_exit(self.shardproof(*words, "--min-comparisons", 10**9), 3)

    def test_bad_input_is_one_line(self):
        self.write("not.json", "not JSON")
        self.write("nothing.json", {"verdict": "skip", "compared": {"comparisons": 0}})
        self.write("then.json", {"verdict": "pass", "comparisons": 5})
        words = ("verify", "--case", SMOKE)
        for file in ("none.json", "not.json", "nothing.json"):
            self.refused(*words, "--baseline", file, names=["--baseline", file])
        for number in ("0", "-1", "x", "1.5"):
            self.refused(*words, "--min-comparisons", number, names=["--min-comparisons"])
        self.refused(*words, "--baseline", "then.json", "--json", "then.json",
                     names=["--json", "then.json"])  # fmt: skip
        self.refused(*words, "--summary", "no/such/dir/s.md", names=["--summary"])
        self.refused(*words, "--prom", self.dir, names=["--prom"])
        self.refused(*words, "--report-url", "javascript:x", names=["--report-url"])
        self.refused("audit", self.dir, "--latest-good", "--prom", "m", names=["--latest-good"])
        self.refused("verify", "--bugs", "all", "--summary", "s.md", names=["--bugs"])


class Files(CommandTest):
    """compare, audit and crashtest, which need no torch, by the same options."""

    HOSTILE = ("a|b", "`c` [g](http://h) @all", "<script>alert(1)</script>", "d\n# e", "**f**")

    def compared(self, *words, code):
        left = {name: f32([2], [1, 2]) for name in self.HOSTILE}
        right = {name: f32([2], [1, 3]) for name in self.HOSTILE}
        write_safetensors(self.dir / "a.safetensors", left)
        write_safetensors(self.dir / "b.safetensors", right)
        done = self.shardproof("compare", "a.safetensors", "b.safetensors", *words)
        self.assert_exit(done, code)
        return done

    def test_names_are_no_markup_on_the_page(self):
        self.compared("--summary", "s.md", "--prom", "m.prom", code=1)
        page = rendered((self.dir / "s.md").read_text())
        for tag in ("<script", "<a ", "<h1", "<strong>f<"):
            self.assertNotIn(tag, page)
        for text in (
            "a|b",
            "`c` [g](http://h) @all",
            "d\\n# e",
            "&lt;script&gt;alert(1)&lt;/script&gt;",
            "**f**",
        ):
            self.assertIn(f"<code>{text}</code>", page)
        self.assertEqual(page.count("<table>"), 1)
        rows = re.findall(r"<tr>(.*?)</tr>", page, re.S)
        self.assertTrue(all(len(re.findall(r"<t[dh]", row)) == 5 for row in rows), page)
        found = samples((self.dir / "m.prom").read_text())
        labels = 'command="compare",target="a.safetensors, b.safetensors"'
        self.assertEqual(found["shardproof_verdict", labels + ',verdict="fail"'], 1)
        self.assertEqual(found["shardproof_findings", labels + ',state="new"'], 5)

    def test_the_page_of_a_command_without_a_verdict_says_why(self):
        for words in (("compare", "no/a", "no/a"), ("audit", "no/a"),
                      ("verify", "--checkpoint", "no/a")):  # fmt: skip
            self.assert_exit(self.shardproof(*words, "--summary", "s.md"), 2)
            page = rendered((self.dir / "s.md").read_text())
            self.assertIn(f"Shardproof {words[0]}: no verdict", page)
            self.assertIn("no/a", page)
            self.assertIn("exit code 2", page)

    def test_known_differences_pass(self):
        pattern = {"property": "compare.values", "kind": "differs", "tensor": "*"}
        self.write("known.json", known(pattern))
        done = self.compared("--known", "known.json", "--json", "r.json", code=0)
        self.assertTrue(done.out.startswith("PASS, 5 known findings\n"), str(done))
        result = json.loads((self.dir / "r.json").read_text())
        self.assertEqual((result["verdict"], result["exit_code"]), ("pass", 0))
        one = {"fingerprint": result["fingerprints"][0]["fingerprint"]}
        self.write("known.json", known(one))
        done = self.compared("--known", "known.json", code=1)
        self.assertTrue(done.out.startswith("FAIL, 5 findings, 1 of them known\n"), str(done))
        self.compared("--baseline", "r.json", code=1)

    def test_a_baseline_of_compare(self):
        for count, file in ((4, "then"), (1, "now")):
            write_safetensors(self.dir / file, {f"t{i}": f32([2], [1, 2]) for i in range(count)})
        done = self.shardproof("compare", "then", "then", "--json", "then.json")
        self.assert_exit(done, 0)
        done = self.shardproof("compare", "now", "now", "--baseline", "then.json")
        self.assert_exit(done, 3)
        self.assertTrue(
            done.out.startswith("INCONCLUSIVE  compared less than it should"), str(done)
        )

    def test_an_audit_is_known_without_its_numbers(self):
        for values in ([1, float("nan")], [float("nan")] * 5):
            write_safetensors(
                self.dir / "c.safetensors", {"layers.0.w": f32([len(values)], values)}
            )
            done = self.shardproof("audit", "c.safetensors", "--finite", "--json", "r.json")
            self.assert_exit(done, 1)
            result = json.loads((self.dir / "r.json").read_text())
            found = result["fingerprints"][0]
            self.assertEqual(
                found["tensor"], "tensor 'layers.0.w': # NaN and # Inf among # elements"
            )
            if not (self.dir / "known.json").exists():
                self.write("known.json", known({"fingerprint": found["fingerprint"]}))
            done = self.shardproof("audit", "c.safetensors", "--finite", "--known", "known.json")
            self.assert_exit(done, 0)
            self.assertTrue(done.out.startswith("PASS, 1 known finding\n"), str(done))

    def test_known_states_of_a_crash(self):
        (self.dir / "ckpt").mkdir()
        words = ["crashtest", "--root", "ckpt", "--load", "cat {}/a"]
        save = ["--", "sh", "-c", "printf newnewnew > ckpt/a"]
        kinds = (("kill", "wrong"), ("ext4-ordered", "wrong"), ("ext4-ordered", "not durable"),
                 ("posix", "wrong"))  # fmt: skip
        self.write("known.json", known(*(
            {"property": f"crashtest.{model}", "kind": kind, "tensor": "*"}
            for model, kind in kinds)))  # fmt: skip
        for more, code, first in (
            (("--summary", "s.md"), 1, "shardproof: crash states of: "),
            (("--known", "known.json"), 0, "PASS, 4 known findings"),
        ):
            self.write("ckpt/a", "old")
            done = self.shardproof(*words, *more, *save)
            self.assert_exit(done, code)
            self.assertTrue(done.out.startswith(first), str(done))
        page = rendered((self.dir / "s.md").read_text())
        self.assertIn("crashtest: fail, 4 findings", page)
        self.assertIn("from the truncate of a to # bytes on", page)

    def test_the_page_of_a_step_is_added_to(self):
        self.write("page.md", "before\n")
        for _ in range(2):
            self.compared("--summary", "page.md", code=1)
        self.assertEqual((self.dir / "page.md").read_text().count("### Shardproof"), 1)
        page = self.write("page.md", "before\n")
        left = ("compare", "a.safetensors", "b.safetensors", "--summary", page)
        self.assert_exit(self.shardproof(*left, GITHUB_STEP_SUMMARY=str(page)), 1)
        self.assertTrue(page.read_text().startswith("before\n### Shardproof"))


class Clean(CommandTest):
    labels = "selftest multi-rank"
    timeout_s = 120

    def test_says_first_and_removes_then(self):
        self.assert_exit(self.shardproof("verify", "--case", SMOKE, *FLIP, "--report", "a/r"), 1)
        self.write("a/r/notes.txt", "mine")
        self.write("model.safetensors", "weights")
        before = snapshot(self.dir)
        done = self.shardproof("clean")
        self.assert_exit(done, 0)
        self.assertIn("changed in the last hour", done.out)
        done = self.shardproof("clean", ".", "--older", "0s", "--no-scratch")
        self.assertRegex(done.out, r"would +report .*a/r \(without notes.txt, which no run wrote\)")
        self.assertIn("would remove 1 directory, ", done.out)
        self.assert_exit(
            self.shardproof("clean", "--no-scratch", "--older", "0s", "--keep", 1, "--yes"), 0
        )
        self.assertEqual(snapshot(self.dir), before)
        done = self.shardproof("clean", "--no-scratch", "--older", "0s", "--yes")
        self.assert_exit(done, 0)
        self.assertIn("removed 1 directory, ", done.out)
        self.assertEqual(sorted(snapshot(self.dir)),
                         ["a", "a/r", "a/r/notes.txt", "model.safetensors"])  # fmt: skip

    def test_scratch_of_a_run_that_was_killed(self):
        scratch = self.temporary / "shardproof-Ab3dEf"
        scratch.mkdir(mode=0o700)
        os.utime(scratch, (time.time() - 7200,) * 2)
        # It only says so: what lies in /dev/shm is not this test's.
        done = self.run_process(os.environ["SHARDPROOF"], "clean", "--older", "1h")
        self.assertRegex(done.out, f"would +scratch .*{scratch}\n")
        done = self.run_process(os.environ["SHARDPROOF"], "clean", "--older", "1h", "--no-scratch")
        self.assertNotIn("scratch ", done.out)

    def test_what_clean_refuses_is_one_line(self):
        self.refused("clean", "none", names=["none"])
        self.refused("clean", self.write("file", "x"), names=["expected a directory"])
        self.refused("clean", "--older", "soon", names=["--older", "14d"])
        self.refused("clean", "--keep", "-1", names=["--keep"])
        self.refused("clean", "--yes", "--dry-run", names=["--dry-run"])
