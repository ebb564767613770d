"""exceptions.txt: what still breaks a rule, and how much of it. It may only shrink.

    [rule]
    KEY SIZE      findings of this key may come to SIZE in total, and must: less is an error, too

What a rule allows in total may not be more than in the last commit or the one before it, so that a
file may be renamed, but nothing new is excused.
"""

import collections
import subprocess

from .tree import Finding

PATH = "ci/tidy_rules/exceptions.txt"

Allowed = dict[str, tuple[int, int]]  # by key: size, line number


class BadList(Exception):
    pass


def check(tree) -> list[Finding]:
    """Against the last commit, and the one before it."""
    now = parse(tree.text(PATH)) if tree.exists(PATH) else {}
    earlier = (of_commit(tree.root, commit) for commit in ("HEAD", "HEAD^"))
    return [finding for before in earlier for finding in grown(now, before)]


def parse(text: str) -> dict[str, Allowed]:
    """By rule. \\raises BadList."""
    rules: dict[str, Allowed] = {}
    allowed = None
    for number, line in enumerate(text.split("\n"), 1):
        line = line.partition("#")[0].strip()
        if line.startswith("[") and line.endswith("]"):
            allowed = rules.setdefault(line[1:-1], {})
        elif line:
            key, _, size = line.rpartition(" ")
            if allowed is None or not key or not size.isdigit() or int(size) == 0 or key in allowed:
                raise BadList(
                    f"{PATH}:{number}: '{line}': expected [rule], then KEY SIZE, each key once"
                )
            allowed[key] = int(size), number
    return rules


def sizes(findings) -> collections.Counter:
    """By key."""
    total = collections.Counter()
    for finding in findings:
        total[finding.exception] += finding.size
    return total


def judge(findings, allowed: Allowed) -> list[Finding]:
    """The findings that no exception covers, and the exceptions that allow more than there is."""
    total = sizes(findings)
    kept = []
    for finding in findings:
        bound = allowed.get(finding.exception, (0, 0))[0]
        if total[finding.exception] > bound:
            excused = (
                f" (an exception allows {bound} of {total[finding.exception]})" if bound else ""
            )
            kept.append(Finding(finding.path, finding.line, finding.what + excused))
    for key, (bound, line) in allowed.items():
        if total[key] < bound:
            what = (
                f"{key}: expected {total[key]}, found {bound}: ci/tidy --shrink takes back the rest"
            )
            kept.append(Finding(PATH, line, what))
    return kept


def grown(now: dict[str, Allowed], before: dict[str, Allowed]) -> list[Finding]:
    """Rules that allow more than they did; one that is new may begin with anything."""
    found = []
    for rule, allowed in now.items():
        here = sum(size for size, _ in allowed.values())
        there = sum(size for size, _ in before.get(rule, {}).values())
        if rule in before and here > there:
            what = f"[{rule}] allows {here} in total: expected at most {there}, as before"
            found.append(Finding(PATH, 1, what))
    return found


def shrunk(text: str, findings_by_rule: dict) -> str:
    """The list with each size lowered to what there is, and lines taken out that excuse nothing.

    An exception follows a file that has moved to another folder under its own name.
    """
    listed, rule, kept = parse(text), None, []
    for line in text.split("\n"):
        stripped = line.strip()
        if stripped.startswith("[") and stripped.endswith("]"):
            rule = stripped[1:-1]
        elif stripped and not stripped.startswith("#") and rule in findings_by_rule:
            key, _, size = stripped.partition("#")[0].strip().rpartition(" ")
            found = sizes(findings_by_rule[rule])
            if key not in found:
                tail = key.rpartition("/")[2]
                moved = [k for k in found if k.rpartition("/")[2] == tail and k not in listed[rule]]
                key = moved[0] if len(moved) == 1 else key
            now = min(int(size), found[key])
            if now == 0:
                continue
            line = f"{key} {now}"
        kept.append(line)
    return "\n".join(kept)


def of_commit(root, commit) -> dict[str, Allowed]:
    """The list in a commit; {} if there is none, or no git."""
    words = ["git", "-C", str(root), "show", f"{commit}:{PATH}"]
    try:
        shown = subprocess.run(words, capture_output=True, text=True, timeout=30)
    except OSError:
        return {}
    return parse(shown.stdout) if shown.returncode == 0 else {}
