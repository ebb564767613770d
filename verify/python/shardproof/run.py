"""Attaches to a job without editing it: python -m shardproof.run [OPTIONS] SCRIPT ARGUMENTS ...

Runs the script in this process, as Python would, observes what it shards, loads, steps and saves,
and has one report printed when all ranks have ended. Processes that it starts are attached too.

  --at WHEN      when to observe: ready, saved, restored, every=STEPS, with commas
                 (default ready,saved,restored); the first and the last step always count
  --evidence DIR where evidence goes (default shardproof-evidence)
  --who          say who allocates and holds the most of the job's memory; this takes time
  --strict       the job fails if there are findings, or if Shardproof itself fails
  -m MODULE      run a module instead of a script

Exit code: the script's own; with --strict 1 if it was 0 and there are findings.
"""

import os
import pathlib
import runpy
import sys
import types
import uuid

from shardproof._attached import _attach
from shardproof._attached._attached_options import Options, from_environment, parse_at

_BAD_USAGE = 2


def _refuse(why):
    print(f"shardproof.run: {why}", file=sys.stderr)
    sys.exit(_BAD_USAGE)


def parse(words) -> tuple[dict, str | None, list[str]]:
    """\\returns fields of Options, the module to run if there is one, and the words that the job
    gets, its script's name first. \\raises ValueError for what cannot be understood."""
    fields, words, module = {}, list(words), None
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, has_value, value = word.partition("=")
        if word in ("--strict", "--who"):
            fields[word[2:]] = True
            continue
        if name not in ("--at", "--evidence", "-m"):
            raise ValueError(f"unknown option {word}; python -m shardproof.run --help")
        if not has_value:
            if not words:
                raise ValueError(f"{name}: expected a value")
            value = words.pop(0)
        if name == "--at":
            fields["stages"], fields["every"] = parse_at(value)
        elif name == "--evidence":
            fields["folder"] = value
        else:
            module = value
            break
    if module is None and not words:
        raise ValueError("expected a script; python -m shardproof.run --help")
    return fields, module, words


def _attach_to(fields):
    """This process, and by the environment those that it starts."""
    given = from_environment() or Options(launch=uuid.uuid4().hex)
    options = Options(**{**vars(given), **fields})
    folder = os.path.abspath(options.folder)
    Options(**{**vars(options), "folder": folder}).to_environment()
    site = str(pathlib.Path(__file__).parent / "_site")
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if site not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([site, *paths])
    _attach.attach()
    _attach.watch_memory()


def _run_script(words):
    """As `python SCRIPT ARGUMENTS` does, in the module __main__, which stays."""
    path = words[0]
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = types.ModuleType("__main__")
    main.__file__, main.__builtins__ = path, __builtins__
    sys.modules["__main__"] = main
    sys.argv[:] = words
    _put_first(os.path.dirname(os.path.abspath(path)))
    exec(code, main.__dict__)


def _put_first(folder):
    """In the place of what Python put there for us: nothing, if it was told to put nothing."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _run(module, words):
    if module is None:
        return _run_script(words)
    sys.argv[:] = [module, *words]
    _put_first(os.getcwd())
    return runpy.run_module(module, run_name="__main__", alter_sys=True)


def _code_of(end: SystemExit) -> int:
    """What Python exits with."""
    if end.code is None:
        return 0
    return end.code if isinstance(end.code, int) else 1


def _ended() -> int:
    """The job is over, without an error. \\returns what --strict asks for."""
    return _attach.end(0) or _attach.end_command()


def main(words):
    if words[:1] in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    try:
        fields, module, words = parse(words)
        _attach_to(fields)
    except ValueError as error:
        _refuse(error)
    try:
        _run(module, words)
    except SystemExit as end:
        code = _code_of(end)
        if code:
            _attach.end(code)
        elif strict := _ended():
            return strict
        raise
    except BaseException as error:
        _attach.end(1, error)
        raise
    return _ended()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
