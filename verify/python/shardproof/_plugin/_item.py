"""One marked test in pytest's own process: what pytest's hooks are told of it."""

import itertools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import warnings

import pytest

from .. import _program
from .._judging._finding import ranks_text
from . import _mark, _merge
from ._pool import NoRanks, Pool, Skip, base_folder
from ._run import Run

_POOL = pytest.StashKey()
_JUDGE_S = 600
_INCONCLUSIVE = 3  # of its exit codes
EVIDENCE = "evidence"  # as _fixture.py names it


def pool_of(config) -> Pool:
    if _POOL not in config.stash:
        config.stash[_POOL] = Pool(config)
    return config.stash[_POOL]


def close(config, at_once=False):
    if _POOL in config.stash:
        pool = config.stash[_POOL]
        del config.stash[_POOL]
        pool.close(at_once)


def run(item, nextitem, mark):
    """Reports of one test, by pytest's hooks."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    try:
        parts, reports = _run(item, nextitem, mark)
    except BaseException:  # Ctrl-C, or a plugin that limits the time
        close(item.config, at_once=True)
        raise
    _warn(item, parts)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    if item.config.getoption("usepdb", False) and any(report.failed for report in reports):
        terminal = item.config.pluginmanager.get_plugin("terminalreporter")
        terminal.write_line("--pdb: a rank has no terminal, so no debugger can start here")
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    for part in parts:
        if part.exit:
            pytest.exit(f"rank {part.rank}: {part.exit}")


def _run(item, nextitem, mark):
    """What came of it on each rank, and pytest's reports of it."""
    case = _merge.Case(
        item.nodeid, item.location, {name: 1 for name in item.keywords}, str(item.path), [],
        expected=_expected(item),
    )  # fmt: skip
    scratch = _scratch(item.config)
    try:
        asked = _mark.read(mark)
        order = {"path": str(item.path), "nodeid": item.nodeid, "scratch": str(scratch),
                 "next": _next(item, nextitem, asked.world)}  # fmt: skip
        run = Run(pool_of(item.config), asked, order, _show(item.config))
        run.run()
    except _mark.BadMark as error:
        return [], _merge.refused(case, f"@pytest.mark.shardproof: {error}")
    except Skip as why:
        return [], _merge.skipped(case, str(why))
    except NoRanks as error:
        close(item.config, at_once=True)
        return [], _merge.refused(case, f"shardproof has no ranks for this test: {error}")
    case.parts, case.seconds = run.parts, run.seconds
    reports = _merge.merged(case)
    if all(each.passed for each in reports):
        if any(part.observed for part in run.parts):
            _merge.judge(case, reports, _judged(item, scratch / EVIDENCE))
        if all(each.passed for each in reports):
            shutil.rmtree(scratch, ignore_errors=True)
    return run.parts, reports


def _expected(item) -> "str | None":
    """Why the test may fail in whatever way, by its marks of xfail."""
    from _pytest.skipping import evaluate_xfail_marks

    found = None if item.config.getoption("runxfail", False) else evaluate_xfail_marks(item)
    return found.reason or "" if found and found.run and found.raises is None else None


def _scratch(config) -> pathlib.Path:
    above = base_folder(config) / "shardproof"
    above.mkdir(exist_ok=True)
    return pathlib.Path(tempfile.mkdtemp(dir=above, prefix="scratch-"))


def _next(item, nextitem, world) -> "str | None":
    """The next test that these ranks will have, for which their fixtures stay. "unknown" where
    pytest-xdist alone knows it."""
    if nextitem is None:
        return None
    if hasattr(item.config, "workerinput"):
        return nextitem.nodeid if _world(nextitem) == world else "unknown"
    items = item.session.items
    following = itertools.islice(items, items.index(nextitem), None)
    return next((each.nodeid for each in following if _world(each) == world), None)


def _world(item) -> "int | None":
    mark = item.get_closest_marker("shardproof")
    return None if mark is None else mark.kwargs.get("world", _mark.Mark.world)


def _show(config):
    """With -s, what ranks print is seen as it comes."""
    if config.option.capture != "no":
        return None

    def show(rank, text):
        lines = "".join(f"[rank {rank}] {line}\n" for line in text.splitlines())
        sys.stdout.write(lines)
        sys.stdout.flush()

    return show


def _judged(item, evidence) -> str:
    """What `shardproof report` has to say against what was observed. What it could not compare is
    warned of, if it compared anything."""
    program = _program.find()
    if program is None:
        return (
            "the test called observe, but no command `shardproof` was found to judge the evidence"
        )
    done = subprocess.run(
        [program, "report", str(evidence)], capture_output=True, text=True, errors="replace",
        timeout=_JUDGE_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    lacking = [line for line in done.stdout.splitlines() if line.startswith("inconclusive ")]
    compared = re.search(r"^inconclusive: [1-9][\d,]* comparisons", done.stdout, re.MULTILINE)
    if done.returncode == _INCONCLUSIVE and compared:
        text = "shardproof report: " + "\n".join(lacking)
        _record(item, _message(item, text), "runtest")
        return ""
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _message(item, text):
    line = (item.location[1] or 0) + 1
    return warnings.WarningMessage(text, pytest.PytestWarning, str(item.path), line)


def _warn(item, parts):
    """What ranks have warned of, each once."""
    seen = {}
    for part in parts:
        for each in part.warnings:
            key = (each["warning"], each["category"], each["filename"], each["lineno"])
            seen.setdefault(key, (each, []))[1].append(part.rank)
        for note in part.notes or ():
            text = f"rank {part.rank} {note}: the next test has new ranks"
            _record(item, _message(item, text), "runtest")
    for each, ranks in seen.values():
        on = "" if len(set(ranks)) == len(parts) else f" [{ranks_text(tuple(sorted(set(ranks))))}]"
        category = getattr(sys.modules.get(each["module"]), each["category"], UserWarning)
        message = warnings.WarningMessage(
            each["warning"] + on, category, each["filename"], each["lineno"]
        )
        _record(item, message, each["when"])


def _record(item, message, when):
    item.ihook.pytest_warning_recorded.call_historic(
        kwargs={"warning_message": message, "when": when, "nodeid": item.nodeid, "location": None}
    )
