"""Holds what the report tests write against the schemas and parsers:
python check_report.py REPORT_TEST

REPORT_TEST is the built test program. Needs jsonschema, jinja2 and matplotlib. Exit code 0 if all
holds, 1 with one line a fault.
"""

import glob
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from html.parser import HTMLParser

import jsonschema

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEMAS = os.path.join(HERE, "..", "..", "fixtures", "schema")
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Page(HTMLParser):
    """Collects what a report must not have: unbalanced tags, repeated ids, requests, scripts."""

    def __init__(self):
        super().__init__()
        self.open, self.faults, self.ids = [], [], set()

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.check(tag, attributes)

    def handle_startendtag(self, tag, attributes):
        self.check(tag, attributes)

    def check(self, tag, attributes):
        if tag == "script":
            self.faults.append("a script")
        for name, value in attributes:
            if name == "id" and (value in self.ids or self.ids.add(value)):
                self.faults.append(f"id {value} twice")
            if name in ("src", "href", "xlink:href") and not value.startswith(("#", "data:")):
                self.faults.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"line {self.getpos()[0]}: </{tag}> closes nothing")


def validator(name, part=None):
    with open(os.path.join(SCHEMAS, name), encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    if part:
        schema = {"$defs": schema["$defs"], "$ref": f"#/$defs/{part}"}
    return jsonschema.Draft202012Validator(schema)


def first_faults(check, document, label):
    return [
        f"{label}: {error.json_path}: {error.message[:200]}"
        for error in list(check.iter_errors(document))[:3]
    ]


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def check_json(folder):
    faults = []
    for name in ("failing", "passing", "hostile"):
        document = load(f"{folder}/{name}.json")
        faults += first_faults(validator("verdict.schema.json"), document, f"{name}.json")
    faults += first_faults(validator("case.schema.json"), document["case"], "case")
    faults += first_faults(
        validator("evidence.schema.json", "run"), load(f"{folder}/evidence/run.json"), "run.json"
    )
    seen = set()
    for path in sorted(glob.glob(f"{folder}/evidence/*/*.jsonl")):
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                record = json.loads(line)
                # One of each kind and stream: they are all written by the same code.
                key = (record["record"], len(record), os.path.dirname(path))
                if key not in seen:
                    seen.add(key)
                    part = validator("evidence.schema.json", record["record"])
                    faults += first_faults(part, record, f"{path}:{number}")
    return faults


def check_refusals():
    """The schema refuses what the parser refuses, where a schema can say it."""
    check = validator("case.schema.json")
    tensor = {"name": "a.w", "dtype": "F32", "shape": [2]}
    good = {"schema": 1, "mesh": [{"name": "dp_shard", "size": 2}], "model": {"tensors": [tensor]}}
    bad = [
        {**good, "meshh": 1},
        {**good, "seed": -1},
        {**good, "mesh": []},
        {**good, "strategy": "magic"},
        {**good, "bucket_bytes": 0},
        {**good, "model": {"checkpoint": "d", "tensors": [tensor]}},
        {**good, "model": {}},
    ]
    bad += [
        {**good, "model": {"tensors": [{**tensor, **change}]}}
        for change in (
            {"dtype": "F31"},
            {"shape": [-1]},
            {"name": "a..w"},
            {"name": ""},
            {"kind": "weight"},
            {"name": "__metadata__"},
            {"persistent": False},
            {"rope": {"rope_type": "default"}},
            {"init": "normal"},
        )
    ]
    faults = first_faults(check, good, "a good case")
    return faults + [f"accepted: {json.dumps(case)}" for case in bad if check.is_valid(case)]


def check_html(folder):
    faults = []
    for name in ("failing", "passing", "hostile"):
        pages = []
        for attempt in (1, 2):
            out = f"{folder}/{name}.{attempt}.html"
            done = subprocess.run(
                [
                    sys.executable,
                    os.path.join(HERE, "report_html.py"),
                    f"{folder}/{name}.json",
                    f"{folder}/evidence",
                    out,
                ],
                capture_output=True,
                text=True,
            )
            if done.returncode:
                return faults + [f"{name}.html: {done.stderr}"]
            with open(out, encoding="utf-8") as file:
                pages.append(file.read())
        if pages[0] != pages[1]:
            faults.append(f"{name}.html: two runs differ")
        page = Page()
        page.feed(pages[0])
        faults += [f"{name}.html: {fault}" for fault in page.faults + page.open]
        if "{{7*7}}" in pages[0] and ">49<" in pages[0] and name == "hostile":
            faults.append("hostile.html: a name was evaluated as a template")
    return faults


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.argv[1], "--gtest_brief=1"],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "SHARDPROOF_REPORT_SAMPLES": folder},
        )
        faults = check_json(folder) + check_refusals()
        for path in glob.glob(f"{folder}/*.xml"):
            xml.etree.ElementTree.parse(path)
        faults += check_html(folder)
    print("\n".join(faults) if faults else "reports, evidence and cases are as the schemas say")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
