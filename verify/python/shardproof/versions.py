"""`shardproof verify --base ... --head ...` and `shardproof bisect`: one subject on two releases of
a framework, and the first release on which it fails. The command starts this."""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

from . import _program
from ._versions import _env, _table
from ._versions._env import Unavailable

BAD_INPUT, INCONCLUSIVE = 2, 3
_GOOD, _BAD = (0,), (1, 4)  # exit codes of verify: pass; fail and hang
_UNTESTABLE = 125  # as git bisect run has it


def say(what):
    print(f"shardproof: {what}", file=sys.stderr, flush=True)


def main(words) -> int:
    command, *rest = words
    try:
        return {"verify": compared, "bisect": bisected}[command](rest)
    except Unavailable as error:
        say(error)
        return BAD_INPUT


# ---- Base against head ---------------------------------------------------------------------------


def compared(words) -> int:
    parser = argparse.ArgumentParser(
        prog="shardproof verify", allow_abbrev=False,
        description="Runs one subject on two releases of a framework, or on two checkouts, and "
        "prints as Markdown what differs. All other options are those of shardproof verify.",
        epilog="Exit codes: 0 the head is no worse, 1 it is worse, 2 usage or bad input, 3 the "
        "head could not be judged as the base was.",
    )  # fmt: skip
    _add_spec(parser, "--base", "what to compare with")
    _add_spec(parser, "--head", "what to judge")
    parser.add_argument(
        "--python", help="the Python interpreter whose packages both use, including torch"
    )
    parser.add_argument(
        "--report", type=pathlib.Path, metavar="DIR",
        help="write both reports here, in base/ and head/, and the table",
    )  # fmt: skip
    said, others = parser.parse_known_args(words)
    if not (said.base and said.head):
        raise Unavailable("--base and --head go together: give both")
    _refuse_own(others)
    base_python = said.python or _env.base_python()
    pythons = [_env.python_of(each, base_python, say) for each in (said.base, said.head)]
    if said.report is not None and said.report.exists() and any(said.report.iterdir()):
        raise Unavailable(f"{said.report}: expected a folder that is not there yet, or is empty")
    scratch = None if said.report else tempfile.mkdtemp(prefix="shardproof-versions-")
    folder = pathlib.Path(said.report or scratch)
    try:
        sides = []
        for name, spec, python in zip(("base", "head"), (said.base, said.head), pythons):
            say(f"{name}: {spec}")
            sides.append(_judged(spec, python, others, folder / name))
        found = _table.difference(*sides)
        table = _table.markdown(found)
        if said.report:
            (folder / "compared.md").write_text(table)
        print(table, end="", flush=True)
        return found.exit_code()
    finally:
        if scratch:
            shutil.rmtree(scratch, ignore_errors=True)


def _add_spec(parser, name, what):
    parser.add_argument(
        name, metavar="NAME==VERSION|DIR",
        help=f"{what}: a release, several with commas between, or a checkout",
    )  # fmt: skip


def _refuse_own(words):
    for each in words:
        if each.partition("=")[0] in ("--json", "--evidence"):
            raise Unavailable(f"{each.partition('=')[0]} cannot be combined with two releases: "
                              "--report keeps both results")  # fmt: skip


def _judged(spec, python, words, report) -> _table.Side:
    done = _verify([*words, "--python", python, "--report", str(report)])
    try:
        return _table.side_of(spec, report)
    except (OSError, ValueError, KeyError) as error:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise Unavailable(f"{spec}: {lines[-1] if lines else error}") from error


def _verify(words):
    program = _program.find()
    if program is None:
        raise Unavailable("no command `shardproof` was found beside this package or in PATH")
    return subprocess.run([program, "verify", *words], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)  # fmt: skip


# ---- Bisect --------------------------------------------------------------------------------------


def bisected(words) -> int:
    parser = argparse.ArgumentParser(
        prog="shardproof bisect", allow_abbrev=False,
        description="Finds the first release on which a subject fails. All other options are those "
        "of shardproof verify; --property selects the failure to look for. With --checkout, judges "
        "the checkout as it is, for `git bisect run`.",
        epilog="Exit codes: 0 found, 2 usage or bad input, 3 releases in between could not be "
        "judged. With --checkout: 0 good, 1 bad, 125 cannot be judged.",
    )  # fmt: skip
    parser.add_argument("--good", metavar="NAME==VERSION", help="a release on which it passes")
    parser.add_argument("--bad", metavar="NAME==VERSION", help="a release on which it fails")
    parser.add_argument("--checkout", metavar="DIR", help="git bisect run shardproof bisect "
                        "--checkout . --subject ...")  # fmt: skip
    parser.add_argument(
        "--python", help="the Python interpreter whose packages are used, including torch"
    )
    said, others = parser.parse_known_args(words)
    base_python = said.python or _env.base_python()
    if said.checkout:
        return _of_checkout(said.checkout, base_python, others)
    name, good, bad = _endpoints(said)
    releases = _between(_env.releases_of(name, base_python), good, bad)
    say(f"{len(releases) - 2} releases of {name} between {releases[0]} and {releases[-1]}")
    judge = _Judge(name, base_python, others)
    for version, expected in ((good, True), (bad, False)):
        if judge(version) is not expected:
            raise Unavailable(
                f"{name}=={version} is not {'good' if expected else 'bad'}: {judge.lines[version]}"
            )
    order = releases if releases[0] == good else releases[::-1]
    last_good, first_bad = _narrowed(order, judge)
    print(f"{name}=={order[last_good]} passes, {name}=={order[first_bad]} fails:")
    print(f"  {judge.lines[order[first_bad]]}")
    unknown = order[last_good + 1 : first_bad]
    if unknown:
        print(f"  not judged in between: {', '.join(unknown)}")
    return INCONCLUSIVE if unknown else 0


def _of_checkout(checkout, base_python, words) -> int:
    try:
        python = _env.python_of(checkout, base_python, say)
        done = _verify([*words, "--python", python])
    except Unavailable as error:
        say(error)
        return _UNTESTABLE
    print(done.stdout, end="", flush=True)
    print(done.stderr, end="", file=sys.stderr, flush=True)
    return 0 if done.returncode in _GOOD else 1 if done.returncode in _BAD else _UNTESTABLE


def _endpoints(said):
    names = []
    for option in (said.good, said.bad):
        name, equals, version = (option or "").partition("==")
        if not (name and equals and version):
            raise Unavailable("expected --good NAME==VERSION and --bad NAME==VERSION")
        names.append((name, version))
    (name, good), (other, bad) = names
    if name != other or good == bad:
        raise Unavailable(f"expected two releases of one package, found {said.good} and {said.bad}")
    return name, good, bad


def _between(releases, good, bad) -> list[str]:
    """From the older to the newer one of the two, both with it."""
    for each in (good, bad):
        if each not in releases:
            raise Unavailable(f"the package index has no release {each}")
    first, last = sorted((releases.index(good), releases.index(bad)))
    return releases[first : last + 1]


class _Judge:
    """Whether a release passes; None: it cannot be judged. lines: what was said of each."""

    def __init__(self, name, base_python, words):
        self._name, self._base, self._words = name, base_python, words
        self._known: dict[str, bool | None] = {}
        self.lines: dict[str, str] = {}

    def __call__(self, version) -> bool | None:
        if version not in self._known:
            self._known[version] = self._judged(version)
            found = {True: "good", False: "bad", None: "cannot be judged"}[self._known[version]]
            say(f"{self._name}=={version}: {found}: {self.lines[version]}")
        return self._known[version]

    def _judged(self, version):
        try:
            python = _env.python_of(f"{self._name}=={version}", self._base, say)
        except Unavailable as error:
            self.lines[version] = str(error)
            return None
        done = _verify([*self._words, "--python", python])
        told = [line for line in done.stdout.splitlines() if line.startswith("FAIL ")]
        every = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        self.lines[version] = (told or every[-1:] or ["nothing was printed"])[0]
        if done.returncode in _GOOD:
            return True
        return False if done.returncode in _BAD else None


def _narrowed(order, judge) -> tuple[int, int]:
    """\\returns (the last good one, the first bad one); what lies between cannot be judged."""
    low, high = 0, len(order) - 1
    while True:
        # The nearest to the middle that can be judged.
        middle = (low + high) / 2
        inner = sorted(range(low + 1, high), key=lambda at: (abs(at - middle), at))
        at = next((at for at in inner if judge(order[at]) is not None), None)
        if at is None:
            return low, high
        low, high = (at, high) if judge(order[at]) else (low, at)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
