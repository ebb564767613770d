"""Runs in every Python that an attached job starts, before anything else: PYTHONPATH has this
folder first. Then the sitecustomize that would have been found without it, if there is one."""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_other():
    elsewhere = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    other = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = other
    spec.loader.exec_module(other)


def _told_first(excepthook, attached):
    def tell(kind, error, trace):
        attached.end(1, error)
        excepthook(kind, error, trace)

    return tell


def _attach():
    if not os.environ.get("SHARDPROOF_ATTACH"):
        return
    package = os.path.dirname(os.path.dirname(_HERE))
    sys.path.append(package)  # for as long as ours is imported, if nothing else has it
    try:
        import atexit

        from shardproof._attached import _attach as attached

        attached.attach()
        atexit.register(attached.end, 0)
        sys.excepthook = _told_first(sys.excepthook, attached)
    except Exception as error:  # a failure of ours ends no process of the job's
        print(f"shardproof: not attached: {error}", file=sys.stderr)
    finally:
        sys.path.remove(package)


_attach()
_run_other()
