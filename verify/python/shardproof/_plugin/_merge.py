"""Of the reports of a test's ranks, those of one test, as pytest shows them."""

import dataclasses
import re

from _pytest._code.code import (
    ExceptionChainRepr,
    ReprEntryNative,
    ReprFileLocation,
    ReprTraceback,
)
from _pytest.reports import TestReport

from .._judging._finding import ranks_text
from . import _stack
from ._pool import signal_text

_LOST_PEER = re.compile(r"Connection (closed|reset) by peer|Broken pipe|Socket closed")
_RANKS_SHOWN = 16
_PHASES = ("setup", "call", "teardown")


@dataclasses.dataclass
class Case:
    """A test, its parts by rank, and what pytest says of it. file, line: where it is. expected: the
    reason of an xfail that holds for whatever goes wrong, or None. seconds: set if it was too
    slow."""

    nodeid: str
    location: tuple
    keywords: dict
    file: str
    parts: list
    seconds: "float | None" = None
    expected: "str | None" = None

    @property
    def world(self) -> int:
        return len(self.parts)


def merged(case: Case) -> list[TestReport]:
    """Reports of setup, call and teardown, as far as the ranks came."""
    by_phase = {phase: _of_phase(case, phase) for phase in _PHASES}
    made = []
    gone = _what_ended(case)
    for phase in _PHASES:
        last = phase == "teardown"
        if not by_phase[phase] and not (last or gone and phase == gone[0]):
            continue
        if phase == "call" and made and not made[0].passed:
            continue  # pytest calls no test whose setup failed
        report = _merge(case, phase, by_phase[phase], gone if gone and phase == gone[0] else None)
        if report is not None:
            made.append(report)
    for part in case.parts[:_RANKS_SHOWN]:
        _attach(made, case, part)
    return made


def refused(case: Case, why: str) -> list[TestReport]:
    """The one report of a test that could not be tried."""
    return [TestReport(case.nodeid, case.location, case.keywords, "failed", _chain_of(why, case),
                       "setup")]  # fmt: skip


def skipped(case: Case, why: str) -> list[TestReport]:
    return [TestReport(case.nodeid, case.location, case.keywords, "skipped",
                       (case.file, _line(case), f"Skipped: {why}"), "setup")]  # fmt: skip


def judge(case: Case, reports: list, why: str):
    """why: what was found in the evidence of a test that passed; "" if nothing."""
    if why:
        call = next(each for each in reports if each.when == "call")
        call.outcome = "failed"
        call.longrepr = _chain_of(
            "the evidence that the test recorded fails:\n" + why.rstrip(), case
        )
        call.longrepr.reprcrash.message = why.strip().splitlines()[0]


def _of_phase(case, phase) -> dict:
    """The reports by rank."""
    return {
        part.rank: TestReport._from_json(each)
        for part in case.parts
        for each in part.reports
        if each["when"] == phase
    }


def _what_ended(case):
    """(phase, parts) of ranks that did not come to the end; None if all did."""
    parts = [part for part in case.parts if not part.done]
    if not parts:
        return None
    first = min(
        (part for part in case.parts if part.at is not None), key=lambda part: part.at, default=None
    )
    if first is None:  # none failed: all that are left are too slow
        first = min(parts, key=lambda part: len(part.reports))
    bad = next((each["when"] for each in first.reports if each["outcome"] != "passed"), None)
    return bad or _PHASES[min(len(first.reports), len(_PHASES) - 1)], parts


def _merge(case, phase, reports, gone):
    start = min((each.start for each in reports.values()), default=0)
    stop = max((each.stop for each in reports.values()), default=start)
    report = TestReport(
        case.nodeid, case.location, case.keywords, "passed", None, phase,
        duration=max((each.duration for each in reports.values()), default=0), start=start,
        stop=stop,
    )  # fmt: skip
    for each in reports.values():
        for entry in each.user_properties:
            if tuple(entry) not in report.user_properties:
                report.user_properties.append(tuple(entry))
    _decide(case, phase, report, reports, gone)
    return report


def _decide(case, phase, report, reports, gone):
    xfailed = {r: each for r, each in reports.items() if _is_xfailed(each)}
    skipped = {r: each for r, each in reports.items() if each.skipped and r not in xfailed}
    failed = {r: each for r, each in reports.items() if each.failed}
    real = {r: each for r, each in failed.items() if not _is_strict_pass(each)}
    if gone and case.expected is not None and not real:
        _expect(report, case.expected)
    elif skipped and not real and (not gone or all(part.ended_by_us for part in gone[1])):
        _skip(case, report, skipped, gone)
    elif real or gone and not xfailed:
        _fail(case, report, real, gone)
    elif xfailed:
        _expect(report, next(iter(xfailed.values())).wasxfail)
    elif failed:
        _fail(case, report, failed, None)
    else:
        xpassed = [each for each in reports.values() if hasattr(each, "wasxfail")]
        if xpassed:
            report.wasxfail = xpassed[0].wasxfail


def _is_xfailed(report) -> bool:
    return report.skipped and hasattr(report, "wasxfail")


def _is_strict_pass(report) -> bool:
    return isinstance(report.longrepr, str) and report.longrepr.startswith("[XPASS(strict)]")


def _expect(report, reason):
    report.outcome, report.wasxfail = "skipped", reason


def _fail(case, report, failed, gone):
    """The rank that failed first has pytest's failure section, the others a section in it."""
    report.outcome = "failed"
    order = sorted(failed, key=lambda r: (_follows(failed[r]), case.parts[r].at or 0))
    others = [part for part in gone[1] if part.rank not in failed] if gone else []
    causes = [part for part in others if not part.ended_by_us]
    first = None
    died_first = [
        part for part in causes
        if order and (_follows(failed[order[0]]) or _is_before(part, case.parts[order[0]]))
    ]  # fmt: skip
    if order and not died_first:
        shown = _as_chain(failed[order[0]], case)
        head = f"{_of(order[0], case)}" + (" raised first" if len(order) > 1 or others else "")
        _put_first(shown, head + ":", f"rank {order[0]}: ")
        first, order = order[0], order[1:]
    else:
        cause = min(causes or others, key=lambda part: part.at or 0)
        shown = _chain_of(_fate(case, cause), case)
        others = [part for part in others if part is not cause]
    for part in others[:_RANKS_SHOWN]:
        shown.addsection(_of(part.rank, case), _fate(case, part))
    if len(others) > _RANKS_SHOWN:
        shown.addsection(f"and {len(others) - _RANKS_SHOWN} more ranks", "")
    for rank in order:
        text = _crash(failed[rank].longrepr)
        same = text == _crash(shown, f"rank {first}: " if first is not None else "")
        what = " raised the same" if same else " raised"
        shown.addsection(_of(rank, case) + what, "" if same else text)
    report.longrepr = shown


def _follows(report) -> bool:
    """Whether it is what a rank raises because another has gone."""
    return _LOST_PEER.search(_crash(report.longrepr)) is not None


def _is_before(part, other) -> bool:
    return part.at is not None and (other.at is None or part.at < other.at)


def _skip(case, report, skipped, gone):
    """A failure, if not all ranks skip the test."""
    reason = _tuple(skipped[min(skipped)].longrepr)
    if len(skipped) == case.world:
        report.outcome, report.longrepr = "skipped", reason
        return
    reason = reason[2] if isinstance(reason, tuple) else str(reason)
    on = ranks_text(tuple(sorted(skipped)))
    text = f"{on} of {case.world} skipped the test, and the others did not: {reason}"
    shown = _chain_of(text, case)
    for part in gone[1][:_RANKS_SHOWN] if gone else ():
        shown.addsection(_of(part.rank, case), _fate(case, part))
    report.outcome, report.longrepr = "failed", shown


def _fate(case, part) -> str:
    """What became of a rank that did not come to the end: a line."""
    rank = _of(part.rank, case)
    if part.broken:
        return f"{rank} could not run the test: {part.broken}"
    if part.exit:
        return f"{rank} asked pytest to end: {part.exit}"
    if not part.ended_by_us:
        how = "did not come to the end" if part.status is None else signal_text(part.status)
        crashed = _stack.is_of_crash(part.err)
        place = _stack.where(part.err, part.thread, case.file) if crashed else ""
        return f"{rank} {how} while the test ran" + (f", {place}" if crashed else "")
    place = _stack.where(part.stack, part.thread, case.file)
    if case.seconds is not None:
        return f"{rank} did not end within {case.seconds:g} s: it was {place}"
    return f"{rank} did not end by itself after that, and was ended: it was {place}"


def _of(rank, case) -> str:
    return f"rank {rank} of {case.world}"


def _line(case) -> int:
    return (case.location[1] or 0) + 1


def _tuple(longrepr):
    return tuple(longrepr) if isinstance(longrepr, list) else longrepr


def _chain_of(text, case) -> ExceptionChainRepr:
    trace = ReprTraceback([ReprEntryNative([text + "\n"])], None, "native")
    return ExceptionChainRepr([(trace, ReprFileLocation(case.file, _line(case), text), None)])


def _as_chain(report, case) -> ExceptionChainRepr:
    if isinstance(report.longrepr, ExceptionChainRepr):
        return report.longrepr
    return _chain_of(str(report.longrepr), case)


def _crash(longrepr, prefix="") -> str:
    """Where, and what was raised; the whole where that is not known."""
    crash = getattr(longrepr, "reprcrash", None)
    if crash is None:
        return str(longrepr)
    return f"{crash.path}:{crash.lineno}: {crash.message.removeprefix(prefix)}"


def _put_first(shown, head, prefix):
    """head: a line above the traceback. prefix: of the one line that summaries show."""
    shown.reprtraceback.reprentries.insert(0, ReprEntryNative([head + "\n"]))
    if shown.reprcrash is not None:
        shown.reprcrash.message = prefix + shown.reprcrash.message


def _attach(reports, case, part):
    """What a rank has printed, to the report that failed, or to that of the call."""
    if not reports:
        return
    bad = next((each for each in reports if each.failed), None)
    to = bad or next((each for each in reports if each.when == "call"), reports[0])
    stack = _stack.shown(part.stack)
    err = _stack.shown(part.err) if _stack.is_of_crash(part.err) else part.err
    own = [("Captured stdout", part.out), ("Captured stderr", err), ("Stacks", stack)]
    sections = {tuple(section): None for each in part.reports for section in each["sections"]}
    for name, text in [*sections, *own]:
        if text:
            to.sections.append((f"{name} ({_of(part.rank, case)})", text))
