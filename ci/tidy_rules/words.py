"""Nothing that others read names a path of one machine, or the host of a package registry."""

import re

from .tree import Finding

BANNED = {
    "a path of one machine": re.compile(
        r"(?<![\w.$}])/(?:home/\w+|work|root|mnt/\w+|Users/\w+)/[\w.]"
    ),
    "the host of a registry": re.compile(
        r"https?://[\w.-]*(?:artifactory|nexus|mirror|proxy|registry)[\w.-]*[:/]"
        r"|https?://\d+\.\d+\.\d+\.\d+[:/]"
        r"|--(?:extra-)?index-url[ =]|\bextra-index-url\b"
    ),
}
_LOCAL = re.compile(r"https?://127\.0\.0\.1")
# Data that others made, and tests that need such words.
_LEFT_OUT = re.compile(
    r"(?:^|/)corpus/|^ci/tidy_rules/words(?:_test)?\.py$|\.(?:pt|distcp|metadata)$|^LICENSE$"
)


def check(tree):
    for path in tree.files:
        if _LEFT_OUT.search(path):
            continue
        for number, line in tree.lines(path):
            for what, pattern in BANNED.items():
                match = pattern.search(line)
                if match and not _LOCAL.match(match[0]):
                    yield Finding(path, number, f"'{match[0]}' is {what}: expected none")
