"""The Python package as pip installs it, from this build, in a folder of its own: what is in it,
and that the command runs from there.
"""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from checkpoints import write_llama
from command import REPOSITORY, CommandTest, checkpoint

SOURCE = REPOSITORY / "verify" / "python" / "shardproof"


class Package(CommandTest):
    labels = "selftest framework"
    timeout_s = 210

    def setUp(self):
        super().setUp()
        self.site = self.root / "site"
        words = ["cmake", "--install", os.environ["SHARDPROOF_BUILD"], "--component", "package"]
        subprocess.run([*words, "--prefix", self.site], check=True, capture_output=True)
        self.package = self.site / "shardproof"

    def python(self, *words, **options):
        options = {"timeout": 100, **options}
        return self.run_process(sys.executable, *words, PYTHONPATH=str(self.site), **options)

    def installed(self, *words, code, **options):
        done = self.python("-m", "shardproof", *words, **options)
        self.assert_exit(done, code)
        return done

    def test_it_holds_what_it_needs_and_no_more(self):
        found = {str(p.relative_to(self.package)) for p in self.package.rglob("*") if p.is_file()}
        sources = {path.name for path in SOURCE.glob("*.py") if not path.name.endswith("_test.py")}
        expected = sources | {"_built.py", "_digest_op.so", "_site/sitecustomize.py"}
        subjects = (REPOSITORY / "verify" / "subjects").glob("*.py")
        helpers = (SOURCE / "subjects").glob("*.py")
        expected |= {
            f"subjects/{path.name}"
            for path in (*subjects, *helpers)
            if not path.name.endswith("_test.py")
        }
        report = REPOSITORY / "verify" / "report"
        expected |= {f"_report/{path.name}" for path in report.glob("*.j2")} | {"_report/bundle.py"}
        expected |= {f"_report/{path.name}" for path in report.glob("report_*.py")}
        ready = REPOSITORY / "verify" / "maps" / "ready"
        expected |= {f"_maps/{path.name}" for path in ready.glob("*.map")}
        reproduce = REPOSITORY / "verify" / "reproduce"
        expected |= {f"_reproduce/{path.relative_to(reproduce)}" for ending in ("j2", "in", "py")
                     for path in reproduce.rglob(f"*.{ending}")
                     if not path.name.endswith("_test.py")}  # fmt: skip
        libraries = {
            name
            for name in found
            if re.fullmatch(r"_bin/lib(fmt|simdjson|isal|fiu)\.so\.\d+", name)
        }
        expected |= {"_bin/shardproof", "_bin/shardproof-engine"}
        for built in ("libshardproof_cuda.so", "libshardproof_interpose.so"):
            if (Path(os.environ["SHARDPROOF_BUILD"]) / built).exists():
                expected.add(f"_bin/{built}")
        self.assertEqual(found - libraries, expected)

    def test_it_needs_no_library_of_another_package_but_torch(self):
        given = {"libtorch_cpu.so", "libc10.so", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1",
                 "libc.so.6", "ld-linux-x86-64.so.2"}  # fmt: skip
        beside = {path.name for path in (self.package / "_bin").iterdir()}
        for file, known in (("_digest_op.so", given), ("_bin/shardproof-engine", given | beside),
                            ("_bin/shardproof", given | beside)):  # fmt: skip
            done = self.run_process("readelf", "-d", self.package / file)
            needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", done.out))
            # Files are compared and audited without LibTorch, which takes a third of a second to
            # load.
            self.assertEqual("libtorch_cpu.so" in needed, file != "_bin/shardproof", file)
            self.assertLessEqual(needed, known, file)

    def test_pip_is_told_the_version_and_the_command(self):
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        versions = {
            "pyproject.toml": project["version"],
            "CMakeLists.txt": re.search(
                r"project\(shardproof VERSION (\S+)", (REPOSITORY / "CMakeLists.txt").read_text()
            )[1],
            "__init__.py": re.search(r'__version__ = "(.+)"', (SOURCE / "__init__.py").read_text())[
                1
            ],
        }
        self.assertEqual(len(set(versions.values())), 1, versions)
        module, function = project["scripts"]["shardproof"].split(":")
        done = self.python("-c", f"import {module} as m, sys; print(callable(m.{function}),"
                                 " 'torch' in sys.modules)")  # fmt: skip
        self.assertEqual(done.out.split(), ["True", "False"], str(done))

    def test_another_torch_is_named(self):
        (self.package / "_built.py").write_text('TORCH_VERSION = "1.2.3"\n')
        done = self.installed("--help", code=2)
        self.assertEqual(done.out, "")
        self.assertEqual(len(done.err.splitlines()), 1, done.err)
        for words in ("expected 1.2.3", f"has torch {importlib.metadata.version('torch')}"):
            self.assertIn(words, done.err)

    def test_op_is_used_and_one_that_does_not_load_is_done_without(self):
        digest = (
            "import torch, shardproof._digest as d; from shardproof._layout import Run;"
            "print(d.has_op(), d.digest_runs(torch.arange(5.0), [Run(0, 5)]).hex())"
        )
        with_op = self.python("-W", "error", "-c", digest)
        shutil.copy(self.package / "_report" / "report_html.py", self.package / "_digest_op.so")
        without = self.python("-c", digest)
        self.assertEqual(with_op.out.split()[0], "True", str(with_op))
        self.assertEqual(without.out.split(), ["False", with_op.out.split()[1]], str(without))
        self.assertIn("_digest_op.so cannot be loaded by torch", without.err)


class Command(Package):
    labels = "selftest multi-rank framework"
    fixtures = "checkpoints"
    timeout_s = 300

    def test_installed_command_compares_and_verifies(self):
        self.assertIn("verify", self.installed("--help", code=0).out)
        write_llama(self.dir / "a")
        write_llama(self.dir / "b", files=2)
        self.installed("compare", "a", "b", code=0)
        words = ["verify", "--checkpoint", checkpoint("llama-tied-small"), "--world", 2]
        self.installed(*words, "--report", "report", code=0)
        self.assertGreater((self.dir / "report" / "report.html").stat().st_size, 0)

    def test_installed_command_brings_its_package_to_any_python(self):
        """Nothing but the program knows where the package is: there is no PYTHONPATH."""
        done = self.run_process(
            self.package / "_bin" / "shardproof", "verify", "--world", 2,
            "--subject", self.package / "subjects" / "fsdp2.py",
            "--checkpoint", checkpoint("llama-tied-small"),
            SHARDPROOF_PYTHON=sys.executable, timeout=240,
        )  # fmt: skip
        self.assert_exit(done, 0)
