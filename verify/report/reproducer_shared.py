"""What reproducer.py, of Python subjects, and reproducer_reference.py have in common: which finding
comes first, the Markdown report, and the index that html.py reads.
"""

import json
import os
import platform

import jinja2

HERE = os.path.dirname(os.path.abspath(__file__))
LINES_SHOWN = 20
REPORTS_MAX = 10


class NotShown(Exception):
    """Why nothing is written that shows a finding."""


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


def quoted(text):
    """A literal of C++."""
    return json.dumps(str(text), ensure_ascii=False)


def facts_of(evidence, phase, rank):
    """The facts that a rank left, as far as they can be read."""
    path = os.path.join(evidence, phase, f"rank_{rank}.facts.jsonl")
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:  # a torn last line
                return


def age(finding, compared):
    """Phases and stages in the order of the run: the earliest is the likeliest cause."""
    place = lambda names, name: names.index(name) if name in names else len(names)
    return place(compared["phases"], finding["phase"]), place(compared["stages"], finding["stage"])


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
    return jinja2.Environment(loader=jinja2.FileSystemLoader(HERE), trim_blocks=True,
                              lstrip_blocks=True, undefined=jinja2.StrictUndefined,
                              keep_trailing_newline=True)  # fmt: skip


def report_text(template, group, result, output, **more):
    """The Markdown report of a group of findings.

    template: one that extends reproducer.md.j2
    output: what the reproducer printed, of which the last lines are shown
    """
    first = group.findings[0]
    prop = next((one for one in result["properties"] if one["id"] == first["property"]), {})
    shown = [line for line in output.splitlines() if line.strip()]
    return templates().get_template(template).render(
        group=group, first=first, title=title_of(first), prop=prop, result=result,
        case=result["case"], compared=result["compared"], output=shown[-LINES_SHOWN:],
        cut=max(0, len(shown) - LINES_SHOWN), machine=machine(), **more,
    )  # fmt: skip


def write_index(out, findings, left_out):
    """reproducers.json: what came of each finding, by its fingerprint."""
    with open(os.path.join(out, "reproducers.json"), "w", encoding="utf-8") as file:
        json.dump({"schema": 1, "left_out": left_out, "findings": findings}, file, indent=1)
        file.write("\n")
