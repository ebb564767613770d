"""What subject.py and reference.py have in common: the groups of findings that have one cause, the
Markdown report of each, and the index that report_html.py reads.
"""

import dataclasses
import json
import os
import platform
import re

import jinja2

HERE = os.path.dirname(os.path.abspath(__file__))
LINES_SHOWN = 20
REPORTS_MAX = 10


def read_result(path):
    """The document of a run, each of its findings with every field."""
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    result.setdefault("faults", [])  # in plain words
    for finding in result["findings"]:
        for field in ("phase", "stage", "tensor", "expected", "seen", "explanation", "message"):
            finding[field] = finding.get(field) or ""
        for field in ("hosts", "coordinates", "ranks"):
            finding.setdefault(field, [])
    return result


@dataclasses.dataclass
class Group:
    """Findings of one cause, and those that are likely consequences of it."""

    findings: list = dataclasses.field(default_factory=list)
    also: list = dataclasses.field(default_factory=list)
    slug: str = ""

    @property
    def first(self):
        return self.findings[0]


def name_groups(groups):
    """Gives each group the name of its files, numbered from cause to consequence."""
    for number, group in enumerate(groups):
        name = f"{number + 1:02d}-{group.first['property']}-{group.first['kind']}"
        group.slug = re.sub(r"[^\w-]+", "-", name)
    return groups


def title_of(finding):
    return f"{finding['property']}: {finding['message'] or finding['kind']}"


def machine():
    """The processor and system on which a reproducer was run."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next(line.split(":", 1)[1].strip() for line in file if "model name" in line)
    except (OSError, StopIteration):
        pass
    return {"system": platform.platform(), "cpu": f"{model}, {os.cpu_count()} cores"}


def templates():
    """The templates of this folder."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )


def write_report(out, template, group, result, output="", **more):
    """Writes the Markdown report of a group. \\returns its file name

    template: one that extends report.md.j2
    output: what the reproducer printed, of which the last lines are shown
    """
    prop = next((one for one in result["properties"] if one["id"] == group.first["property"]), {})
    shown = [line for line in output.splitlines() if line.strip()]
    text = (
        templates()
        .get_template(template)
        .render(
            group=group,
            first=group.first,
            title=title_of(group.first),
            prop=prop,
            result=result,
            case=result["case"],
            compared=result["compared"],
            output=shown[-LINES_SHOWN:],
            cut=max(0, len(shown) - LINES_SHOWN),
            machine=machine(),
            **more,
        )
    )
    with open(os.path.join(out, group.slug + ".md"), "w", encoding="utf-8") as file:
        file.write(text)
    return group.slug + ".md"


def write_index(out, findings, left_out):
    """reproducers.json: what came of each finding, by its fingerprint."""
    with open(os.path.join(out, "reproducers.json"), "w", encoding="utf-8") as file:
        json.dump({"schema": 1, "left_out": left_out, "findings": findings}, file, indent=1)
        file.write("\n")
