import pytest

from tidy_rules import words


@pytest.mark.parametrize(
    "line",
    [
        "see /home/someone/src",
        "cd /work/someone && make",
        "it lies in /root/.cache",
        "pip install --index-url https://packages.example/simple torch",
        "https://nexus.example.org/repository",
        "http://10.1.2.3:8080/simple",
    ],
)
def test_paths_of_machines_and_hosts_of_registries_are_found(tree_of, places, line):
    assert places(words.check(tree_of({"README.md": f"# x\n{line}\n"}))) == ["README.md:2"]


@pytest.mark.parametrize(
    "line",
    [
        "build/work/someone is fine, as is $SCRATCH/work/someone and ${x}/work/y",
        "https://pytorch.org/docs/stable and http://127.0.0.1:29500/x",
        "/proc/self/status, /dev/shm, /tmp",
    ],
)
def test_others_are_not(tree_of, line):
    assert not list(words.check(tree_of({"README.md": line})))
