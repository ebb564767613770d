"""What a maintainer asks about an environment: the fields of torch's collect_env, without paths
and host names. Prints them as JSON:

    python environment.py

It imports nothing of the environment, so that a broken torch can be told about, too.
"""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys

PACKAGES = re.compile(
    r"^(torch.*|pytorch.*|triton.*|numpy|optree|onnx.*|nvidia-.*|mypy|flake8|transformers|peft|"
    r"accelerate|safetensors|deepspeed|lightning|megatron.*)$"
)
PROGRAM_SECONDS = 10


def said(*words):
    """What a program prints, or "" if there is none or it fails."""
    if shutil.which(words[0]) is None:
        return ""
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def first_version(text):
    found = re.search(r"\d+(\.\d+)+", text)
    return found[0] if found else "none"


def system_name():
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = platform.system()
    return f"{name} ({platform.machine()})"


def of_torch():
    """{name: value} that torch/version.py sets, read and not run."""
    for entry in sys.path:
        path = os.path.join(entry, "torch", "version.py")
        if os.path.isfile(path):
            line = re.compile(r"^(\w+)(?:: [^=]*)? = '?(.*?)'?$", re.MULTILINE)
            with open(path, encoding="utf-8") as file:
                return dict(line.findall(file.read()))
    return {}


def processor():
    model = ""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file
                          if line.startswith("model name")), "")  # fmt: skip
    except OSError:
        pass
    return f"{model or platform.machine()}, {os.cpu_count()} cores"


def packages():
    """["torch==2.15.0", ...], sorted."""
    found = set()
    for one in importlib.metadata.distributions():
        name = one.metadata["Name"] if one.metadata else None
        if name and PACKAGES.match(name.lower()):
            found.add(f"{name}=={one.version}")
    return sorted(found, key=str.lower)


def without_places(text):
    """The same without absolute paths and this host's name."""
    text = re.sub(r"\bfile:\S+", "(path)", text)
    text = re.sub(r"(?<![\w.:/])/(?:[\w.+@~-]+/)+[\w.+@~-]*", "(path)", text)
    for name in {socket.gethostname(), socket.gethostname().split(".")[0]}:
        if len(name) > 2:
            text = re.sub(rf"(?<![\w]){re.escape(name)}(?![\w])", "(host)", text)
    return text


def collect():
    """[(field, value), ...] in the order of collect_env; values are one line each, or of packages
    one line a package."""
    torch = of_torch()
    gpus = said("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    driver = said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    none = lambda value: "N/A" if value in ("", "None", None) else value
    fields = [
        ("PyTorch version", none(torch.get("__version__"))),
        ("Is debug build", none(torch.get("debug"))),
        ("CUDA used to build PyTorch", none(torch.get("cuda"))),
        ("ROCM used to build PyTorch", none(torch.get("hip"))),
        ("OS", system_name()),
        ("GCC version", first_version(said("gcc", "--version"))),
        ("Clang version", first_version(said("clang", "--version"))),
        ("CMake version", first_version(said("cmake", "--version"))),
        ("Libc version", "-".join(platform.libc_ver())),
        ("Python version", f"{platform.python_version()} ({sys.maxsize.bit_length() + 1}-bit)"),
        ("Python platform", platform.platform()),
        ("GPU models", none("; ".join(gpus.splitlines()))),
        ("Nvidia driver version", none(driver.split("\n")[0])),
        ("CPU", processor()),
        ("Versions of relevant libraries", "\n".join(packages()) or "none"),
    ]
    return [(name, without_places(value)) for name, value in fields]


if __name__ == "__main__":
    json.dump(collect(), sys.stdout)
