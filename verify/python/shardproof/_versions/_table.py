"""Two verdicts of one subject beside each other, as Markdown for a pull request."""

import dataclasses
import json
import pathlib

_SHOWN = 10  # findings of each kind
_BAR = 24  # characters
_RANKED = {"pass": 0, "skip": 0, "inconclusive": 1, "fail": 2}


@dataclasses.dataclass
class Side:
    """One run. name: what it is called; result: its JSON document; memory: {stage: (peak MiB of
    its worst rank on the way to it, that rank, sum of all ranks' peaks in MiB)}."""

    name: str
    result: dict
    memory: dict[str, tuple[float, int, float]]

    @property
    def verdict(self) -> str:
        return self.result["verdict"]

    def properties(self) -> dict[str, dict]:
        return {each["id"]: each for each in self.result["properties"]}

    def findings(self) -> dict[str, dict]:
        return {each["fingerprint"]: each for each in self.result["findings"]}


def side_of(name: str, report: pathlib.Path) -> Side:
    """\\raises OSError, ValueError or KeyError if the report is not whole."""
    result = json.loads((report / "result.json").read_text())
    return Side(name, result, _memory(report / "evidence"))


def _memory(evidence: pathlib.Path) -> dict[str, tuple[float, int, float]]:
    """Anonymous memory above what the process had before, in the phase that measures it, on the
    way to each stage that every rank reaches."""
    ranks = {}
    for path in sorted((evidence / "memory").glob("rank_*.measures.jsonl")):
        records = map(json.loads, path.read_text().splitlines())
        number = int(path.name.split(".")[0].removeprefix("rank_"))
        ranks[number] = [each for each in records if each.get("record") == "memory"]
    if not all(ranks.values()) or not ranks:
        return {}
    of_all = set.intersection(*({each["stage"] for each in taken} for taken in ranks.values()))
    peaks: dict[str, dict[int, float]] = {}
    for number, taken in ranks.items():
        idle, toward, later = taken[0]["anonymous_bytes"], "", ""
        for each in reversed(taken):  # of which each bears the last stage that was reached
            if each["stage"] != later and later in of_all:
                toward = later
            later = each["stage"]
            mib = (each["anonymous_bytes"] - idle) / 2**20
            of_stage = peaks.setdefault(toward, {})
            of_stage[number] = max(mib, of_stage.get(number, 0.0))
    return {
        stage: (max(by_rank.values()), max(by_rank, key=by_rank.get), sum(by_rank.values()))
        for stage, by_rank in reversed(peaks.items())
        if stage
    }


@dataclasses.dataclass
class Difference:
    """new, gone, same: findings. worse: properties that hold in the base and not in the head."""

    base: Side
    head: Side
    new: list[dict] = dataclasses.field(default_factory=list)
    gone: list[dict] = dataclasses.field(default_factory=list)
    same: list[dict] = dataclasses.field(default_factory=list)
    worse: list[str] = dataclasses.field(default_factory=list)

    def exit_code(self) -> int:
        """1: the head is worse; 3: it could not be judged as the base was; 0: neither."""
        failed = [each for each in self.worse if self.head.properties()[each]["verdict"] == "fail"]
        if self.new or failed:
            return 1
        unjudged = self.head.verdict == "inconclusive" and self.base.verdict != "inconclusive"
        return 3 if self.worse or unjudged else 0


def difference(base: Side, head: Side) -> Difference:
    found = Difference(base, head)
    before, after = base.findings(), head.findings()
    found.new = [each for key, each in after.items() if key not in before]
    found.gone = [each for key, each in before.items() if key not in after]
    found.same = [each for key, each in after.items() if key in before]
    was, now = base.properties(), head.properties()
    for key, each in now.items():
        if key in was and was[key]["verdict"] == "pass" and _RANKED[each["verdict"]] > 0:
            found.worse.append(key)
    return found


def markdown(found: Difference) -> str:
    base, head = found.base, found.head
    parts = [
        f"### Shardproof: {_code(base.name)} against {_code(head.name)}: {_sentence(found)}",
        _properties(found),
        _listed("New in the head", found.new),
        _listed("Gone since the base", found.gone),
        _listed("In both", found.same),
        _memory_table(base, head),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _sentence(found: Difference) -> str:
    if found.exit_code() == 1:
        counts = f"{len(found.new)} new finding{'s' if len(found.new) != 1 else ''}"
        return f"the head is worse, {counts}"
    if found.exit_code() == 3:
        return "the head could not be judged as the base was"
    if found.gone:
        return f"the head is better, {len(found.gone)} findings are gone"
    return "no difference in what was found"


def _properties(found: Difference) -> str:
    was, now = found.base.properties(), found.head.properties()
    rows, alike = [], 0
    for key in sorted({*was, *now}):
        one, other = (_verdict(each.get(key)) for each in (was, now))
        if one == other and "fail" not in one:
            alike += 1
        else:
            rows.append(f"| {_code(key)} | {one} | {other} |")
    if not rows:
        return f"All {alike} properties have the same verdict."
    head = (
        f"| property | {_code(found.base.name)} | {_code(found.head.name)} |\n| --- | --- | --- |"
    )
    rest = f"\n\n{alike} other properties have the same verdict in both." if alike else ""
    return "\n".join([head, *rows]) + rest


def _verdict(each) -> str:
    if each is None:
        return "not there"
    count = each["findings"]
    return each["verdict"] + (f", {count} finding{'s' if count != 1 else ''}" if count else "")


def _listed(title: str, findings: list[dict]) -> str:
    if not findings:
        return ""
    lines = [f"- {_code(each['property'])}: {_text(each['message'])}" for each in findings[:_SHOWN]]
    if more := len(findings) - _SHOWN:
        lines += [f"- and {more} more"] if more > 0 else []
    return f"**{title}** ({len(findings)})\n\n" + "\n".join(lines)


def _memory_table(base: Side, head: Side) -> str:
    stages = [stage for stage in base.memory if stage in head.memory]
    most = max((side.memory[stage][0] for side in (base, head) for stage in stages), default=0.0)
    if most <= 0:
        return ""
    lines = [
        f"{'up to':12} {'all':>9} {'most':>8}  MiB above the start: sum of ranks' peaks, highest"
    ]
    for stage in stages:
        for name, side in (("base", base), ("head", head)):
            mib, rank, total = side.memory[stage]
            bar = "#" * max(0, round(_BAR * mib / most))
            first = stage if name == "base" else ""
            lines.append(f"{first:12} {total:9.1f} {mib:8.1f}  {name} {bar} rank {rank}")
    return "**Host memory by stage**\n\n```\n" + "\n".join(lines) + "\n```"


def _code(text: str) -> str:
    return "`" + text.replace("`", "'").replace("|", "\\|").replace("\n", " ") + "`"


def _text(text: str) -> str:
    line = " ".join(text.split())
    for mark in ("\\", "|", "<", "*", "_"):
        line = line.replace(mark, "\\" + mark)
    return line
