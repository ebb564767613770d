"""Environments in which a subject runs on another release of a framework, or on a checkout of it.

Each is a folder of its own packages before those of the Python that it is made from, so that they
share one torch. It is made once, and kept in the user's cache.
"""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

_PIP_S = 1800.0
_COMPLETE = ".complete"
_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,_-]+\])?==[A-Za-z0-9.!+]+")


class Unavailable(Exception):
    """Why an environment is not to be had: one line."""


def python_of(spec: str, base: str, say) -> str:
    """The Python of an environment. spec: "NAME==VERSION", several with commas between, or the
    folder of a checkout. base: the Python whose packages it sees. say: told a line where it takes
    time. \\raises Unavailable."""
    is_checkout = os.path.isdir(spec)
    if not is_checkout:
        for each in spec.split(","):
            if not _RELEASE.fullmatch(each):
                raise Unavailable(
                    f"{spec}: expected NAME==VERSION or the folder of a checkout, found {each!r}"
                )
    torch_version, purelib = _asked(base)
    whole = os.path.abspath(spec) if is_checkout else spec
    key = hashlib.sha256("\n".join([base, torch_version, purelib, whole]).encode()).hexdigest()[:16]
    label = os.path.basename(whole) if is_checkout else spec
    folder = _cache() / f"{re.sub('[^A-Za-z0-9.=-]', '_', label)[:60]}-{key}"
    python = folder / "bin" / "python"
    if (folder / _COMPLETE).exists():
        return str(python)
    say(f"making the environment of {spec}, once")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)  # one that was not completed
        _make(folder, base, purelib)
        if is_checkout:
            _put_first(folder, whole)
        else:
            _install(folder, base, spec, torch_version)
        (folder / _COMPLETE).write_text(f"{spec}\n")
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise Unavailable(
                f"{folder.parent}: cannot hold the environment of {spec}: {error.strerror}; "
                "set XDG_CACHE_HOME to another folder"
            ) from error
        raise
    return str(python)


def _cache() -> pathlib.Path:
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(base) / "shardproof" / "environments"


def _asked(base) -> tuple[str, str]:
    """(torch's version, the folder of packages)."""
    code = (
        "import sysconfig; from importlib import metadata\n"
        "print(metadata.version('torch')); print(sysconfig.get_path('purelib'))"
    )
    done = _run([base, "-c", code], 60, f"{base} cannot be asked for its torch")
    version, purelib = done.splitlines()
    return version, purelib


def _make(folder, base, purelib):
    _run([base, "-m", "venv", "--without-pip", str(folder)], 120, "no environment can be made")
    code = f"import site; site.addsitedir({purelib!r})"
    (_packages(folder) / "packages_of_the_base.pth").write_text(code + "\n")


def _packages(folder) -> pathlib.Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = str(pathlib.Path(folder, "bin", "python"))
    return pathlib.Path(_run([python, "-c", code], 60, "it cannot be asked").strip())


def _put_first(folder, checkout):
    source = os.path.join(checkout, "src")
    root = source if os.path.isdir(source) else checkout
    line = f"import sys; sys.path.insert(0, {root!r})"
    (_packages(folder) / "checkout.pth").write_text(line + "\n")


def _install(folder, base, spec, torch_version):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", prefix="shardproof-") as constraints:
        constraints.write(f"torch=={torch_version}\n")
        constraints.flush()
        _run(
            [base, "-m", "pip", "--python", str(folder / "bin" / "python"), "install",
             "--disable-pip-version-check", "--no-input", "--progress-bar", "off", "--quiet",
             "--constraint", constraints.name, *spec.split(",")],
            _PIP_S, f"pip cannot install {spec}",
        )  # fmt: skip
    if (_packages(folder) / "torch").exists():
        raise Unavailable(
            f"{spec} installs another torch, which conflicts with torch {torch_version}"
        )


def releases_of(name: str, base: str) -> list[str]:
    """The versions that the package index has, the oldest first. \\raises Unavailable."""
    said = _run(
        [base, "-m", "pip", "index", "versions", name, "--disable-pip-version-check"], 120,
        f"pip finds no releases of {name}",
    )  # fmt: skip
    for line in said.splitlines():
        if line.startswith("Available versions:"):
            return [each.strip() for each in line.partition(":")[2].split(",")][::-1]
    raise Unavailable(f"pip lists no releases of {name}")


def _run(words, seconds, what) -> str:
    environment = {**os.environ, "PYTHONNOUSERSITE": "1"}
    environment.pop("PYTHONPATH", None)
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL,
            env=environment,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{what}: {error}") from error
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR:")]
        raise Unavailable(f"{what}: {(errors or lines or ['no reason was given'])[-1].strip()}")
    return done.stdout


def base_python() -> str:
    return os.environ.get("SHARDPROOF_PYTHON") or sys.executable
