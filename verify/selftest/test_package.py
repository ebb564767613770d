"""The two Python packages as pip installs them, from this build, in a folder of their own: what is
in them, and that the command runs from there, with the engine and without.
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
        for component in ("package", "engine"):
            words = ["cmake", "--install", os.environ["SHARDPROOF_BUILD"], "--component", component]
            subprocess.run([*words, "--prefix", self.site], check=True, capture_output=True)
        self.package = self.site / "shardproof"
        self.engine = self.site / "shardproof_engine"

    def python(self, *words, **options):
        options = {"timeout": 100, **options}
        return self.run_process(sys.executable, *words, PYTHONPATH=str(self.site), **options)

    def installed(self, *words, code, **options):
        done = self.python("-m", "shardproof", *words, **options)
        self.assert_exit(done, code)
        return done

    def files_in(self, folder):
        """Without the libraries of Debian's packages."""
        found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        library = r"_bin/lib(fmt|simdjson|isal|fiu)\.so\.\d+"
        return {name for name in found if not re.fullmatch(library, name)}

    def test_it_holds_what_it_needs_and_no_more(self):
        sources = {
            str(path.relative_to(SOURCE))
            for path in [*SOURCE.glob("*.py"), *SOURCE.glob("_*/*.py")]
            if not path.name.endswith("_test.py")
        }
        expected = sources | {"_bin/shardproof", "_digest_op.so", "_site/sitecustomize.py"}
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
        self.assertEqual(self.files_in(self.package), expected)

    def test_the_engine_is_beside_it(self):
        expected = {"__init__.py", "_bin/shardproof-engine"}
        for built in ("libshardproof_cuda.so", "libshardproof_interpose.so"):
            if (Path(os.environ["SHARDPROOF_BUILD"]) / built).exists():
                expected.add(f"_bin/{built}")
        self.assertEqual(self.files_in(self.engine), expected)

    def test_it_needs_no_library_of_another_package_but_torch(self):
        given = {"libtorch_cpu.so", "libc10.so", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1",
                 "libc.so.6", "ld-linux-x86-64.so.2"}  # fmt: skip
        for file in (self.package / "_digest_op.so", self.package / "_bin" / "shardproof",
                     self.engine / "_bin" / "shardproof-engine"):  # fmt: skip
            beside = {path.name for path in file.parent.iterdir()}
            done = self.run_process("readelf", "-d", file)
            needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", done.out))
            # Files are compared and audited without LibTorch, which takes a third of a second to
            # load.
            self.assertEqual("libtorch_cpu.so" in needed, file.name != "shardproof", file)
            self.assertLessEqual(needed, given | beside, file)

    def test_pip_is_told_the_version_and_the_command(self):
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        engine = tomllib.loads((REPOSITORY / "engine" / "pyproject.toml").read_text())["project"]
        needed = next(each for each in engine["dependencies"] if each.startswith("shardproof"))
        versions = {
            "pyproject.toml": project["version"],
            "engine/pyproject.toml": engine["version"],
            "what the engine needs": needed.split("==")[1],
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

    def refused(self, *words):
        """\returns the one line that is said."""
        done = self.installed(*words, code=2)
        self.assertEqual((done.out, len(done.err.splitlines())), ("", 1), str(done))
        return done.err

    def test_another_torch_is_named_where_the_engine_is_needed(self):
        (self.engine / "__init__.py").write_text('TORCH_VERSION = "1.2.3"\n')
        said = self.refused("verify", "--world", 2)
        for words in ("expected 1.2.3", f"has torch {importlib.metadata.version('torch')}",
                      "pip install --force-reinstall"):  # fmt: skip
            self.assertIn(words, said)
        self.assertIn("expected 1.2.3", self.installed("--help", code=0).out)

    def test_without_the_engine_files_are_judged_and_evidence(self):
        shutil.rmtree(self.engine)
        for word in ("verify", "replay", "shrink", "list"):
            self.assertIn("pip install shardproof-engine", self.refused(word))
        write_llama(self.dir / "a")
        self.installed("compare", "a", "a", code=0)
        self.assertIn("run.json", self.refused("report", self.dir / "nothing"))
        self.assertIn("report", self.installed("--help", code=0).out)

    def test_op_is_used_and_one_that_does_not_load_is_done_without(self):
        digest = (
            "import torch; from shardproof._digests import _digest as d;"
            "from shardproof._holdings._layout import Run;"
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
        shutil.rmtree(self.engine)  # evidence is judged without it
        self.assertIn("pass: ", self.installed("report", "report", code=0).out)

    def test_installed_command_brings_its_package_to_any_python(self):
        """Nothing but the program knows where the package is: there is no PYTHONPATH."""
        done = self.run_process(
            self.package / "_bin" / "shardproof", "verify", "--world", 2,
            "--subject", self.package / "subjects" / "fsdp2.py",
            "--checkpoint", checkpoint("llama-tied-small"),
            SHARDPROOF_PYTHON=sys.executable, timeout=240,
        )  # fmt: skip
        self.assert_exit(done, 0)
