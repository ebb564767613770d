"""One report of an attached job, by whichever of its processes ends last."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

from .. import _program
from . import _attached_evidence, _attached_options

_GRACE_S = 2.0  # after a failure, for others to fail too: a launcher kills them soon
_REPORT_S = 600
_REPORTED = "reported"  # in the folder of a job: empty until its report is there


def report_if_last(options, folder, *, failed: bool) -> int:
    """folder: of this process's job; None if it had no part in one: then it reports those of its
    launch that are over. \\returns 1 if there are findings and the job is to fail by them."""
    if folder is not None:
        if failed:
            _wait_for_others(folder)
        is_last = failed or not _attached_evidence.running(folder)
        folders = [folder] if is_last else []
    else:
        folders = [each for each in _jobs_of(options) if not _attached_evidence.running(each)]
    with _undisturbed():
        codes = [_report_once(options, each) for each in folders if _is_ours_to_report(each)]
    return 1 if options.strict and any(codes) else 0


def of_launch(options) -> int:
    """Says so if no process of the launch had a part in a job. \\returns 1 if there are findings in
    one, whoever has reported them, or there was none; and the command is to fail by that."""
    folders = _jobs_of(options)
    if not folders:
        _say("no model was seen: none was wrapped, and no optimizer stepped one")
    return 1 if options.strict and (not folders or any(map(_is_found_bad, folders))) else 0


def _is_found_bad(folder) -> bool:
    """Not while another process makes the report: that one fails by it."""
    reported = folder / _REPORTED
    return reported.exists() and reported.read_text() not in ("", "0")


@contextlib.contextmanager
def _undisturbed():
    """This process is at its end. A launcher that ends it because another has failed waits."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)


def _jobs_of(options):
    """Jobs that processes of this launch took part in."""
    base = pathlib.Path(options.folder)
    if not base.is_dir():
        return []
    return [each for each in sorted(base.iterdir())
            if options.launch in _attached_evidence.launches_of(each)]  # fmt: skip


def _wait_for_others(folder):
    end = time.monotonic() + _GRACE_S
    while _attached_evidence.running(folder) and time.monotonic() < end:
        time.sleep(0.05)


def _is_ours_to_report(folder) -> bool:
    try:
        os.close(os.open(folder / _REPORTED, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def _report_once(options, folder) -> int:
    """Leaves there what it came to, for the command that started it all."""
    code = 1
    try:
        code = _report(options, folder)
    finally:
        (folder / _REPORTED).write_text(str(code))
    return code


def _report(options, folder) -> int:
    """\\returns 1 if there are findings, or it cannot be told."""
    _attached_evidence.fill_absent(folder)
    models = _attached_evidence.models_in(folder)
    if not any(_attached_evidence.has_stages(each) for each in models):
        _say(f"no model was seen in this job; {folder}")
        return 1 if options.strict else 0
    program = _program.find()
    if program is None:
        _say(f"nothing was judged, since the command `shardproof` is not in PATH; "
             f"later: shardproof report {folder}")  # fmt: skip
        return 1
    return max(_judge(program, each, options.who) for each in models)


def _judge(program, folder, in_full) -> int:
    """in_full: whether the report is wanted where nothing was found too."""
    result = folder / "result.json"
    environment = {k: v for k, v in os.environ.items() if k != _attached_options.VARIABLE}
    done = subprocess.run(
        [program, "report", str(folder), "--json", str(result)], env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_REPORT_S,
        start_new_session=True,
    )  # fmt: skip
    try:
        document = json.loads(result.read_text())
    except (OSError, ValueError):
        _say(f"{folder} cannot be judged: {(done.stderr or done.stdout).strip()[-500:]}")
        return 1
    if document["findings"]:
        print(done.stdout, end="", file=sys.stderr, flush=True)
        return 1
    if in_full:
        print(done.stdout, end="", file=sys.stderr, flush=True)
    counts = done.stdout.strip().splitlines()[-1].partition(": ")[2]
    _say(f"no finding: {counts}; {folder}")
    for why in _left_in(document):
        print(f"  not judged: {why}", file=sys.stderr, flush=True)
    return 0


def _left_in(document) -> list[str]:
    """Why something was not judged. That an attached job names no checkpoint, which would say what
    is to be loaded, and is not seen being built, is so of each."""
    return [
        each["reason"]
        for each in document["properties"]
        if each["verdict"] == "inconclusive" and not each["id"].startswith("loading.")
    ]


def _say(what):
    print(f"shardproof: attached: {what}", file=sys.stderr, flush=True)
