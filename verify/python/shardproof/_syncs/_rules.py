"""What must hold over the syncs of a trainer and its engines, by the logs of both (_log.py).

Each rule is a function of the logs that yields findings, and `Unsure` where it cannot tell: a log
may have been read while its job was running.
"""

import collections
import dataclasses

# A lower rate may change no element of a model at all.
_RATE_LEAST = 1e-8


@dataclasses.dataclass
class Log:
    """Of one job. lines: in the order in which they were written."""

    name: str
    lines: list[dict]

    def newest(self) -> int:
        return max(line["version"] for line in self.lines)


@dataclasses.dataclass
class Logs:
    trainer: Log | None
    engines: list[Log]

    def sent(self) -> dict[int, set[str]]:
        """The manifests of each version, in the order of versions."""
        found = collections.defaultdict(set)
        for line in self.trainer.lines if self.trainer else ():
            found[line["version"]].add(line["manifest"])
        return dict(sorted(found.items()))


@dataclasses.dataclass(frozen=True)
class Unsure:
    """Why it cannot be said whether the rule holds."""

    why: str


@dataclasses.dataclass(frozen=True)
class Skipped:
    """Why there is nothing that the rule could judge."""

    why: str


_NO_TRAINER = Unsure("there is no log of a trainer")
_NO_ENGINE = Unsure("there is no log of an engine")


def received(logs: Logs):
    """Every manifest that was sent, each engine was given, as it was sent."""
    if not logs.trainer or not logs.engines:
        yield _NO_ENGINE if logs.trainer else _NO_TRAINER
        return
    sent = logs.sent()
    for engine in logs.engines:
        given = {line["version"] for line in engine.lines}
        each_given = {(line["version"], line["manifest"]) for line in engine.lines}
        for version, manifest in sorted(each_given):
            if version in sent and manifest not in sent[version]:
                yield f"{engine.name} was given a version {version} that is not the trainer's"
            elif version not in sent and version >= min(sent):
                yield f"{engine.name} was given version {version}, which the trainer did not send"
        for version in sent:
            if version not in given and _passed_over(engine, version):
                yield f"{engine.name} was not given version {version}, but was given newer ones"
    last = max(engine.newest() for engine in logs.engines)
    late = [version for version in sent if version > last]
    if len(late) > 1:
        yield f"no engine was given version {late[0]} or a newer one; the last is {late[-1]}"
    elif late:
        yield Unsure(f"no engine was given version {late[0]} yet, the last one that was sent")


def _passed_over(engine: Log, version: int) -> bool:
    """Whether one process of the engine was given an older and a newer one."""
    older, newer = set(), set()
    for line in engine.lines:
        (older if line["version"] < version else newer).add(line["job"])
    return bool(older & newer)


def loaded(logs: Logs):
    """After each sync an engine holds what its manifest says. A load may have been repeated: one
    whole check that found nothing suffices."""
    checks = _checks(logs)
    if not checks:
        yield Unsure("no engine checked what it holds") if logs.engines else _NO_ENGINE
    for (name, _, version), lines in checks.items():
        if not any(map(_is_whole, lines)) and (bad := [each for each in lines if _is_bad(each)]):
            yield from _found(name, version, bad[-1])


def unchanged(logs: Logs):
    """Between two syncs no weight of an engine changes: what once was right stays so."""
    judged = False
    for (name, _, version), lines in _checks(logs).items():
        right = next((at for at, line in enumerate(lines) if _is_whole(line)), len(lines))
        judged = judged or right + 1 < len(lines)
        if bad := [line for line in lines[right + 1 :] if _is_bad(line)]:
            for said in _found(name, version, bad[0]):
                yield f"changed after it was loaded: {said}"
    if not judged:
        yield Skipped(
            "no engine checked a version a second time, such as before it loads the next one"
        )


def _checks(logs: Logs) -> dict[tuple, list[dict]]:
    """By (engine, process, version): what was found when the engine looked."""
    found = collections.defaultdict(list)
    for engine in logs.engines:
        for line in engine.lines:
            if line["looked"]:
                found[engine.name, line["job"], line["version"]].append(line)
    return found


def _is_bad(line) -> bool:
    return bool(line["count"] or line["refused"])


def _is_whole(line) -> bool:
    return not _is_bad(line) and line["looked_at"] == line["held"]


def _found(name, version, line):
    if line["refused"]:
        yield f"{name} at version {version}: {line['refused']}"
    for each in line["found"]:
        on = f" on rank {', '.join(map(str, each['ranks']))}" if each["ranks"] else ""
        yield f"{each['tensor']}{on} of {name} at version {version}: {each['what']}"
    if more := line["count"] - len(line["found"]):
        yield f"and {more} more of {name} at version {version}"


def versions_rise(logs: Logs):
    """Within one process no version is lower than one before. What a trainer sends again is the
    same."""
    for log in (logs.trainer, *logs.engines):
        highest: dict[str, dict] = {}
        for line in log.lines if log else ():
            before = highest.setdefault(line["job"], line)
            if line["version"] < before["version"]:
                yield f"{log.name}: version {line['version']} after version {before['version']}"
            elif line["version"] == before["version"] and line["manifest"] != before["manifest"]:
                yield f"{log.name}: version {line['version']} twice, with other weights"
            else:
                highest[line["job"]] = line
    if not (logs.trainer or logs.engines):
        yield _NO_TRAINER


def one_version(logs: Logs):
    """All engines hold the same version, and of each version the same weights."""
    if len(logs.engines) < 2:
        yield Skipped("there are fewer than two engines")
        return
    first: dict[int, tuple[str, str]] = {}
    for engine in logs.engines:
        for line in engine.lines:
            name, manifest = first.setdefault(line["version"], (engine.name, line["manifest"]))
            if manifest != line["manifest"]:
                yield (
                    f"{name} and {engine.name} were given different weights as version "
                    f"{line['version']}"
                )
                break
    newest = max(logs.engines, key=Log.newest)
    given = sorted({line["version"] for line in newest.lines})
    for engine in logs.engines:
        behind = sum(version > engine.newest() for version in given)
        said = f"{engine.name} is at version {engine.newest()}, {newest.name} at {newest.newest()}"
        if behind > 1:
            yield said
        elif behind:
            yield Unsure(f"{said}, which may be on its way")


def weights_moved(logs: Logs):
    """Steps of the optimizer change what is sent."""
    judged = False
    lines = logs.trainer.lines if logs.trainer else []
    for before, line in zip(lines, lines[1:]):
        if before["job"] != line["job"] or None in (before["steps"], line["steps"], before["rate"]):
            continue
        if line["steps"] <= before["steps"] or before["rate"] < _RATE_LEAST:
            continue
        judged = True
        if line["weights"] != before["weights"]:
            continue
        taken = line["steps"] - before["steps"]
        said = (
            f"version {line['version']} has the weights of version {before['version']}, and the "
            f"optimizer took {taken} step{'s' * (taken != 1)} between"
        )
        yield (
            Unsure(f"{said}: rounding to their dtypes may hide all of it")
            if line["rounds"]
            else said
        )
    if not judged:
        yield Skipped("no optimizer took steps between two versions that were sealed with stepped=")


RULES = {
    "sync.received": received,
    "sync.loaded": loaded,
    "sync.unchanged": unchanged,
    "sync.versions_rise": versions_rise,
    "sync.one_version": one_version,
    "sync.weights_moved": weights_moved,
}
