"""The command of the installed package."""

from importlib import metadata

import pytest

from shardproof import __main__ as command


@pytest.fixture
def torch_is(monkeypatch):
    def set_to(version):
        def look(name):
            if version is None:
                raise metadata.PackageNotFoundError(name)
            return version

        monkeypatch.setattr(metadata, "version", look)

    return set_to


@pytest.mark.parametrize("found", ["2.15.0", "2.15.0+cpu", "2.15.0+cu130"])
def test_what_follows_a_plus_does_not_matter(torch_is, found):
    torch_is(found)
    command.check_torch("2.15.0+cpu")


@pytest.mark.parametrize(
    ("found", "said"), [(None, "has no torch"), ("2.11.0", "has torch 2.11.0")]
)
def test_another_torch_is_bad_input_told_in_one_line(torch_is, capsys, found, said):
    torch_is(found)
    with pytest.raises(SystemExit) as end:
        command.check_torch("2.15.0")
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert said in error and "expected 2.15.0" in error and error.count("\n") == 1
