"""The command of the installed package."""

import errno
import pathlib
from importlib import metadata

import pytest

import shardproof
from shardproof import __main__ as command


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of packages that this Python sees; torch and the engine may be put into it."""
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    monkeypatch.delitem(command.sys.modules, "torch", raising=False)
    monkeypatch.delitem(command.sys.modules, "shardproof_engine", raising=False)
    return tmp_path


def put_torch(folder, version):
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").touch()
    about = folder / f"torch-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")


def put_engine(folder, version):
    (folder / "shardproof_engine").mkdir(parents=True)
    (folder / "shardproof_engine" / "__init__.py").write_text(f'TORCH_VERSION = "{version}"\n')


@pytest.mark.parametrize("found", ["2.15.0", "2.15.0+cpu", "2.15.0+cu130"])
def test_what_follows_a_plus_does_not_matter(site, found):
    put_torch(site, found)
    put_engine(site, "2.15.0+cpu")
    engine, why = command.find_engine()
    assert engine == str(site / "shardproof_engine" / "_bin" / "shardproof-engine")
    assert why == ""


@pytest.mark.parametrize(
    ("found", "said", "mended_by"),
    [(None, "has no torch", "torch==2.15.0"), ("2.11.0", "has torch 2.11.0", "shardproof-engine")],
)
def test_another_torch_is_told_in_one_line_with_what_mends_it(site, found, said, mended_by):
    put_engine(site, "2.15.0")
    if found:
        put_torch(site, found)
    engine, why = command.find_engine()
    assert engine == ""
    assert said in why and "expected 2.15.0" in why and why.endswith(mended_by)
    assert "\n" not in why


def test_no_engine_is_told_in_one_line_with_what_installs_it(site):
    put_torch(site, "2.15.0")
    engine, why = command.find_engine()
    assert engine == "" and "\n" not in why
    assert why.endswith("pip install shardproof-engine")


def test_no_torch_is_told_with_what_installs_it(site):
    with pytest.raises(ModuleNotFoundError, match="shardproof.check needs torch.*install torch"):
        shardproof.__getattr__("check")


def test_of_two_torches_both_are_named(site, monkeypatch):
    put_torch(site / "first", "2.15.0")
    put_torch(site / "second", "2.15.0")
    put_engine(site / "second", "2.15.0")
    monkeypatch.setattr("sys.path", [str(site / "first"), str(site / "second")])
    engine, why = command.find_engine()
    assert engine == "" and "two torches" in why
    assert str(site / "first" / "torch") in why and str(site / "second" / "torch") in why


def test_the_version_is_of_the_torch_that_is_imported(site, monkeypatch):
    put_torch(site / "first", "2.11.0")
    put_torch(site / "second", "2.15.0")
    monkeypatch.setattr("sys.path", [str(site / "first"), str(site / "second")])
    assert command.find_torch() == (site / "first" / "torch", "2.11.0")
    monkeypatch.setattr(metadata, "distributions", lambda **_: [])
    assert command.find_torch()[1] == "2.11.0"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOEXEC, "is not a program for"),
        (errno.ENOENT, "glibc 2.28"),
        (errno.EACCES, "cannot be run"),
    ],
)
def test_a_program_of_another_machine_is_told_in_one_line(number, said):
    error = OSError(number, errno.errorcode[number])
    why = command.why_it_does_not_start(pathlib.Path("_bin/shardproof"), error)
    assert said in why and "\n" not in why
