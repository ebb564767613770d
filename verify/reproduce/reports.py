"""What subject.py and reference.py have in common: the groups of findings that have one cause, the
Markdown report of each, and the index that report_html.py reads.
"""

import dataclasses
import json
import os
import platform
import re
import subprocess

import jinja2
from redact import redact

HERE = os.path.dirname(os.path.abspath(__file__))
LINES_SHOWN = 20
REPORTS_MAX = 10
RANKS_SHOWN = 16
ENVIRONMENT_SECONDS = 60


def read_result(path, redacts=False):
    """The document of a run, each of its findings with every field; without values if asked."""
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    result.setdefault("faults", [])  # in plain words
    for finding in result["findings"]:
        for field in ("phase", "stage", "tensor", "expected", "seen", "explanation", "message"):
            finding[field] = finding.get(field) or ""
        for field in ("hosts", "coordinates", "ranks"):
            finding.setdefault(field, [])
    result["redacted"] = ""
    if redacts:
        redact(result)
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


def environment_of(python):
    """[(field, value), ...] of the Python that the job ran in; why there are none otherwise."""
    words = [python, os.path.join(HERE, "environment.py")]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=ENVIRONMENT_SECONDS,
                              stdin=subprocess.DEVNULL)  # fmt: skip
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return [("Environment", f"could not be asked for ({type(error).__name__})")]


def what_holds(group, result):
    """What was tried in the same run and is right, a line each."""
    first, lines = group.first, []
    right = sorted(set(range(first["world_size"])) - set(first["ranks"])) if first["ranks"] else []
    if right:
        names = ", ".join(str(rank) for rank in right[:RANKS_SHOWN])
        more = f" and {len(right) - RANKS_SHOWN} more" if len(right) > RANKS_SHOWN else ""
        lines.append(f"rank{'s' if len(right) > 1 else ''} {names}{more} of {first['world_size']} "
                     f"do{'' if len(right) > 1 else 'es'} not show this finding")  # fmt: skip
    its = [one for one in result["properties"] if one["id"] == first["property"]]
    reads = {phase for one in its for part in one.get("reads", []) for phase in part["phases"]}
    wrong = {one["phase"] for one in result["findings"] if one["property"] == first["property"]}
    phases = [one for one in result["compared"]["phases"] if one in reads - wrong]
    if phases and "every phase" not in reads:
        lines.append(f"the same property has no finding in phase {', '.join(phases)}")
    lines += [f"{one['id']} holds ({one['comparisons']:,})"
              for one in result["properties"] if one["verdict"] == "pass"]  # fmt: skip
    return lines


def templates():
    """The templates of this folder."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )


def write_report(out, template, group, result, output="", environment=(), script="", **more):
    """Writes the Markdown report of a group. \\returns its file name

    template: one that extends report.md.j2
    output: what the reproducer printed, of which the last lines are shown
    environment: as of environment_of
    script: the text of the reproducer, or empty
    """
    if result["redacted"]:
        output = ""
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
            environment=environment,
            script=script,
            holds=what_holds(group, result),
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
