"""Packs a report into one archive, for a bug report:

    python bundle.py REPORT_DIR OUT.tar.gz [--redact]

In it: result.json, the evidence (without checkpoints: a synthetic one follows from the case,
another is its owner's), the reproducers, case.json, report.html, junit.xml and a README that says
how to run it again. What the report lacks is left out. With --redact names, shapes and dtypes stay
and every value goes: bytes in the evidence, expected and seen values in findings, numbers in the
words of errors and reasons, and whole files in which values are all over: the HTML and JUnit
reports and the reproducers. Digests stay: they are needed to judge the evidence again. They are no
secrets: who knows what a tensor may hold can test a guess, and one of a few bytes can be computed
back.

Exit code: 0; 2 if REPORT_DIR is no report or OUT cannot be written, with one line that says why.
OUT is whole or not there.
"""

import argparse
import io
import json
import os
import re
import sys
import tarfile
import tempfile
from pathlib import Path

# Of a finding: what may hold values, in words of its property or as bits, or says what they are.
VALUES_OF_A_FINDING = ("expected", "seen", "explanation", "cause")
CHECKPOINTS = ("source", "saved_")
WORDS = ("message", "reason", "error")
NUMBER = r"\b0x[0-9a-fA-F]+|-?\b\d+(\.\d+)?(e[-+]?\d+)?\b"
WITH_VALUES_ALL_OVER = ("report.html", "junit.xml", "reproducers")


def without_numbers(text):
    """Words, among which values may stand: of a subject's exception, of why something could not be
    judged."""
    return re.sub(NUMBER, "#", text)


def without_values(value):
    """The same without bytes of tensors, at any depth, and without numbers in words."""
    if isinstance(value, dict):
        return {key: without_numbers(each) if key in WORDS and isinstance(each, str)
                else without_values(each)
                for key, each in value.items() if key != "bytes"}  # fmt: skip
    if isinstance(value, list):
        return [without_values(each) for each in value]
    return value


def redacted_finding(finding):
    """Where and what kind, in words without the values."""
    kept = {key: each for key, each in finding.items() if key not in VALUES_OF_A_FINDING}
    where = ", ".join(str(finding[key]) for key in ("phase", "stage", "tensor") if finding.get(key))
    kept["message"] = f"{finding.get('property')}: {finding.get('kind')} ({where}); values left out"
    return kept


def redacted(path, text):
    """The text of one file of a report without values."""
    if path.name == "result.json":
        result = json.loads(text)
        result = {
            key: each if key == "findings" else without_values(each) for key, each in result.items()
        }
        result["findings"] = [redacted_finding(finding) for finding in result.get("findings", [])]
        return json.dumps(result, indent=2, ensure_ascii=False) + "\n"
    if path.name.endswith(".facts.jsonl"):
        # A torn last line stays as it is torn, but without what might be values in it.
        lines = text.splitlines()
        kept = []
        for line in lines:
            try:
                kept.append(json.dumps(without_values(json.loads(line)), ensure_ascii=False))
            except json.JSONDecodeError:
                kept.append("{")
        return "\n".join(kept) + "\n"
    if path.name.endswith(".stderr"):
        return ""
    if path.suffix == ".json":
        return json.dumps(without_values(json.loads(text)), ensure_ascii=False) + "\n"
    return text


def files_of(report, redact):
    """(path, name in the archive) of what is packed, sorted."""
    for path in sorted(report.rglob("*")):
        name = path.relative_to(report)
        if not path.is_file() or path.is_symlink():
            continue
        if (
            name.parts[0] == "evidence"
            and len(name.parts) > 2
            and name.parts[1].startswith(CHECKPOINTS)
        ):
            continue
        if redact and name.parts[0] in WITH_VALUES_ALL_OVER:
            continue
        yield path, name


def readme(result, redact):
    versions = ", ".join(
        f"{name} {version}" for name, version in result.get("versions", {}).items()
    )
    left_out = ("Values were left out: what the archive says of them, it says by digests, which "
                "give away those of a few bytes.\n" if redact else "")  # fmt: skip
    found = len(result.get("findings", []))
    struck = "".join(f"Under a fault: {fault}.\n" for fault in result.get("faults", []))
    return (f"A run of Shardproof: {result.get('verdict')}, {found} findings ({versions}).\n"
            f"{struck}{left_out}\n"
            "result.json has the verdict and the findings, evidence/ what every rank left.\n"
            "  shardproof report .              judges the evidence again\n"
            "  shardproof replay evidence       runs the same case again\n")  # fmt: skip


def pack(report, out, redact):
    result = json.loads((report / "result.json").read_text(encoding="utf-8"))
    root = Path(out.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz"))
    with tempfile.NamedTemporaryFile(dir=out.parent, delete=False) as partial:
        try:
            with tarfile.open(fileobj=partial, mode="w:gz") as archive:

                def add(name, content):
                    entry = tarfile.TarInfo(str(root / name))
                    entry.size = len(content)
                    entry.mode = 0o644
                    archive.addfile(entry, io.BytesIO(content))

                add("README.txt", readme(result, redact).encode())
                for path, name in files_of(report, redact):
                    content = path.read_bytes()
                    if redact:
                        content = redacted(path, content.decode("utf-8", "replace")).encode()
                    add(name, content)
            partial.close()
            os.chmod(partial.name, 0o666 & ~current_umask())
            os.replace(partial.name, out)
        except BaseException:
            os.unlink(partial.name)
            raise


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--redact", action="store_true")
    arguments = parser.parse_args()
    out = arguments.out.absolute()
    try:
        if not (arguments.report / "result.json").is_file():
            raise ValueError("is no report of --report: it has no result.json")
        if out.is_dir():
            raise ValueError(f"{arguments.out}: expected a file to write, found a directory")
        if not os.access(out.parent, os.W_OK | os.X_OK):
            raise ValueError(f"{out.parent}: there is no such directory, or it cannot be written")
        if arguments.report.resolve() in out.parents:
            raise ValueError("the bundle would lie in what it packs")
        pack(arguments.report, out, arguments.redact)
    except OSError as error:
        print(f"{arguments.report}: {error.strerror}", file=sys.stderr)
        return 2
    except (ValueError, AttributeError) as error:
        print(f"{arguments.report}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
