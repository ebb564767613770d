"""audit and compare on what is damaged, malicious or no checkpoint at all."""

import pickle
import shutil

import torch
from checkpoints import write_safetensors
from command import REPOSITORY, CommandTest, snapshot

STORED = REPOSITORY / "fixtures" / "stored"


class Rot(CommandTest):
    """Bits that flip on the disk show without a seal, by the CRC-32 that torch.save writes."""

    STATE = {"w": torch.arange(2000.0), "v": torch.arange(7000, 7010.0)}

    def flip(self, path, start):
        """In the tensor that begins with this number."""
        data = bytearray((self.dir / path).read_bytes())
        at = data.find(torch.tensor([start, start + 1]).numpy().tobytes())
        self.assertGreater(at, 0)
        data[at + 5] ^= 16
        (self.dir / path).write_bytes(data)

    def save(self):
        import torch.distributed.checkpoint as dcp

        torch.save(self.STATE | {"row": self.STATE["w"][3:]}, self.dir / "a.pt")
        dcp.save(self.STATE, checkpoint_id=self.dir / "dcp", no_dist=True)

    def test_it_is_named(self):
        self.save()
        for path, file, names in (
            ("a.pt", "a.pt", "tensors 'w', 'row'"),
            ("dcp", "dcp/__0_0.distcp", "tensor 'w'"),
        ):
            audited = self.judged("audit", path, code=0)
            self.assertEqual((audited["crc32"]["absent"], audited["damage"]), (0, []))
            self.assertGreater(audited["crc32"]["checked"], 5)
            self.flip(file, 100.0)
            (line,) = self.judged("audit", path, code=1)["damage"]
            self.assertTrue(line.startswith(f"{file}: entry 'data/0' at offset "), line)
            self.assertRegex(
                line, f", of {names}: expected CRC-32 [0-9a-f]{{8}}, found [0-9a-f]{{8}}$"
            )

    def test_of_the_pickle(self):
        self.save()
        data = (self.dir / "a.pt").read_bytes()
        for old, new in ((b"row", b"sow"), (b"FloatStorage", b"FloetStorage")):
            (self.dir / "a.pt").write_bytes(data.replace(old, new, 1))
            (line,) = self.judged("audit", "a.pt", code=1)["damage"]
            self.assertIn("a.pt: entry 'data.pkl' at offset ", line)
            self.refused("compare", "a.pt", "a.pt", names=["a.pt", "'data.pkl'", "CRC-32"])

    def test_where_torch_was_told_to_write_none(self):
        self.addCleanup(
            torch.serialization.set_crc32_options, torch.serialization.get_crc32_options()
        )
        torch.serialization.set_crc32_options(False)
        self.save()
        for path, file in (("a.pt", "a.pt"), ("dcp", "dcp/__0_0.distcp")):
            self.flip(file, 100.0)
            audited = self.judged("audit", path, code=0)
            self.assertEqual((audited["crc32"]["checked"], audited["damage"]), (0, []))
            self.assertIn("SOUND, structure only", self.shardproof("audit", path).out)

    def test_of_storages_that_were_filled_later(self):
        with torch.serialization.skip_data():
            torch.save(self.STATE, self.dir / "a.pt")
        audited = self.judged("audit", "a.pt", code=0)
        self.assertEqual((audited["crc32"]["absent"], audited["damage"]), (2, []))
        self.assertIn("SOUND, structure and CRC-32 of ", self.shardproof("audit", "a.pt").out)


class DamagedDcp(CommandTest):
    """A sound directory with one thing wrong in its .metadata or files."""

    def setUp(self):
        super().setUp()
        shutil.copytree(STORED / "dcp_2.15.0", self.dir / "dcp")

    def with_metadata(self, change):
        """Lets torch read the metadata, changes it, and writes it anew."""
        path = self.dir / "dcp" / ".metadata"
        metadata = pickle.loads(path.read_bytes())
        change(metadata)
        path.write_bytes(pickle.dumps(metadata, protocol=4))

    def not_sound(self, *names):
        audited = self.judged("audit", "dcp", code=1)
        self.assertTrue(audited["damage"])
        for name in names:
            self.assertIn(name, audited["damage"][0])
        self.refused("compare", "dcp", "dcp", names=names)

    def test_unchanged_it_is_sound(self):
        self.with_metadata(lambda metadata: None)
        self.assertEqual(self.judged("audit", "dcp", code=0)["damage"], [])

    def test_a_missing_file(self):
        (self.dir / "dcp" / "__1_0.distcp").unlink()
        self.not_sound("__1_0.distcp", "No such file")

    def test_a_short_file(self):
        with (self.dir / "dcp" / "__0_0.distcp").open("r+b") as file:
            file.truncate(4000)
        self.not_sound("within the 4000 bytes of '__0_0.distcp'")

    def chunk(self, metadata, number=1):
        return metadata.state_dict_metadata["rows"].chunks[number]

    def test_chunks_that_overlap_or_leave_a_gap(self):
        def drop(metadata):
            del metadata.state_dict_metadata["rows"].chunks[1]

        self.with_metadata(drop)
        self.not_sound("'rows'", "6 of 15 elements in none")

    def test_a_size_that_does_not_fit(self):
        def grow(metadata):
            metadata.state_dict_metadata["rows"].size = torch.Size([6, 3])

        self.with_metadata(grow)
        self.not_sound("'rows'", "3 of 18 elements in none")

    def test_a_chunk_of_another_size_than_its_file_has(self):
        def widen(metadata):
            self.chunk(metadata).sizes = torch.Size([2, 2])

        self.with_metadata(widen)
        self.not_sound("'rows'", "[2, 2]", "found F32 [2, 3]")

    def test_another_dtype_than_the_file_has(self):
        def cast(metadata):
            metadata.state_dict_metadata["rows"].properties.dtype = torch.int32

        self.with_metadata(cast)
        self.not_sound("'rows'", "I32", "found F32")

    def test_a_piece_without_a_place(self):
        def lose(metadata):
            index = next(i for i in metadata.storage_data if i.fqn == "columns")
            del metadata.storage_data[index]

        self.with_metadata(lose)
        self.not_sound("'columns'", "a place of the piece")

    def test_a_file_outside_of_the_directory(self):
        def leave(metadata):
            for info in metadata.storage_data.values():
                info.relative_path = "../" + info.relative_path

        self.with_metadata(leave)
        self.refused("audit", "dcp", names=[".metadata", "inside the directory", "'../__"])

    def test_a_flipped_byte_is_seen_by_the_seal(self):
        self.assert_exit(self.shardproof("seal", "dcp"), 0)
        path = self.dir / "dcp" / "__1_0.distcp"
        data = bytearray(path.read_bytes())
        data[data.find(torch.tensor([9.0, 10.0, 11.0]).numpy().tobytes())] ^= 4
        path.write_bytes(data)
        audited = self.judged("audit", "dcp", code=1)
        self.assertEqual(["CRC-32" in line for line in audited["damage"]], [True, False])
        self.assertEqual([("rows" in line, "sealed" in line) for line in audited["damage"]],
                         [(True, False), (True, True)])  # fmt: skip

    def test_the_newest_good_one_is_named(self):
        for step in (8, 9, 10, 11):
            shutil.copytree(self.dir / "dcp", self.dir / "run" / f"step-{step}")
        (self.dir / "run/step-11/.metadata").unlink()
        (self.dir / "run/step-10/__0_0.distcp").unlink()
        done = self.shardproof("audit", "run", "--latest-good", "--allow-same", "*")
        self.assert_exit(done, 0)
        self.assertEqual(done.out, "run/step-9\n")
        self.assertEqual(
            [line.split(": ")[1] for line in done.err.splitlines()], ["run/step-11", "run/step-10"]
        )

    def test_what_is_no_checkpoint_is_skipped(self):
        shutil.copytree(self.dir / "dcp", self.dir / "run/step-9")
        self.write("run/logs/events.out", "x")
        self.write("run/results/metrics.json", "{}")
        self.write("run/latest", "step-9")
        passed = "shardproof: run: skipped, not checkpoints: logs, results"
        done = self.shardproof("audit", "run", "--latest-good")
        self.assert_exit(done, 0)
        self.assertEqual((done.out, done.err.splitlines()), ("run/step-9\n", [passed]))
        with (self.dir / "run/step-9/__0_0.distcp").open("r+b") as file:
            file.truncate(4000)
        done = self.shardproof("audit", "run", "--latest-good")
        self.assert_exit(done, 1)
        lines = done.err.splitlines()
        self.assertEqual((len(lines), lines[0]), (3, passed))
        self.assertIn("run/step-9: not sound: ", lines[1])
        self.assertIn("found none among 1", lines[2])

    def test_what_a_checkpoint_is_is_told(self):
        self.write("notes.md", "# Notes\nnothing of a checkpoint")
        self.write("code/main.py", "print(1)")
        file = ["notes.md: expected a checkpoint", "torch.save", "a kind that is not known"]
        folder = [
            "code: expected a checkpoint",
            ".safetensors",
            ".metadata",
            ".pt",
            "found none of",
        ]
        for command in (["audit"], ["seal"], ["compare", "dcp"]):
            self.refused(*command, "notes.md", names=file)
            self.refused(*command, "code", names=folder)

    def test_no_good_one(self):
        (self.dir / "dcp/__0_0.distcp").unlink()
        done = self.shardproof("audit", ".", "--latest-good")
        self.assert_exit(done, 1)
        self.assertIn("found none", done.err)


class Attack:
    """Pickles as a call, whatever it is."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def attacks(proof):
    """Pickles that would leave `proof` behind if Python loaded them, or fill its memory or
    stack."""
    import os
    import subprocess

    touch = f"touch {proof}"
    acting = {
        "system": Attack(os.system, touch),
        "eval": Attack(eval, f"__import__('os').system({touch!r})"),
        "exec": Attack(exec, f"open({str(proof)!r}, 'w')"),
        "popen": Attack(subprocess.Popen, ["touch", str(proof)]),
        "open": Attack(open, str(proof), "w"),
        "torch_load": Attack(torch.load, str(proof)),
        "import": Attack(__import__, "antigravity"),
        "getattr": Attack(getattr, os, "system"),
        "in_a_dict": {"model": torch.ones(2), "x": [Attack(os.system, touch)]},
        "as_a_key": {(1, Attack(os.system, touch)): 2},
    }
    pickles = {}
    for name, value in acting.items():
        for protocol in (2, 4):
            try:
                pickles[f"{name}_{protocol}"] = pickle.dumps(value, protocol)
            except TypeError:  # a module is not pickled
                pickles[f"{name}_{protocol}"] = b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R."
    pickles |= {
        "inst": b"\x80\x02(X\x04\0\0\0trueios\nsystem\n.",
        "obj": b"\x80\x02(cos\nsystem\nX\x04\0\0\0trueo.",
        "extension": b"\x80\x02\x82\x01.",
        "dotted": b"\x80\x04\x8c\x05torch\x8c\x0bhub.os.path\x93.",
        "deep_lists": b"\x80\x02" + b"]" * 3_000_000 + b"a" * 2_999_999 + b".",
        "deep_tuples": b"\x80\x02)" + b"\x85" * 3_000_000 + b".",
        "memo": b"\x80\x02Nr\xff\xff\xff\x7f.",
        "frame": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
        "bytes": b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x00.",
        "long": b"\x80\x02\x8b\xff\xff\xff\x7f.",
        "endless_dict": b"\x80\x02}q\0(X\x01\0\0\0ah\0u.",
        "laughs": b"\x80\x04(]\x94" + b"".join(
            b"](" + bytes((0x68, i)) * 10 + b"e\x94" for i in range(60)) + b"l.",
        "copies": b"\x80\x04(" + b"N" * 500_000 + b"t\x940("
        + b"ctorch\nSize\nh\0\x85R" * 5_000 + b"l.",
        "empty": b"",
        "text": b"this is no pickle",
    }  # fmt: skip
    return pickles


class MaliciousPickles(CommandTest):
    """In each of the places that hold one: refused in one line, nothing run, little memory
    taken."""

    labels = "selftest framework"
    timeout_s = 240

    def setUp(self):
        super().setUp()
        self.proof = self.root / "proof"

    def refuses(self, name, path):
        import resource

        before = snapshot(self.dir)
        done = self.shardproof("audit", path, timeout=30)
        self.assertIn(done.code, (1, 2), f"{name}: {done}")
        said = done.err.splitlines() if done.code == 2 else done.out.splitlines()
        self.assertTrue(said and (done.code == 1 or len(said) == 1), f"{name}: {done}")
        self.assertFalse(self.proof.exists(), name)
        self.assertEqual(snapshot(self.dir), before)
        self.assertLess(
            resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, 2 << 20, name
        )  # KiB

    def test_as_metadata(self):
        (self.dir / "dcp").mkdir()
        for name, content in attacks(self.proof).items():
            (self.dir / "dcp" / ".metadata").write_bytes(content)
            self.refuses(name, "dcp")

    def test_as_data_of_torch_save(self):
        import zipfile

        for name, content in attacks(self.proof).items():
            with zipfile.ZipFile(self.dir / "a.pt", "w") as archive:
                archive.writestr("a/data.pkl", content)
                archive.writestr("a/byteorder", "little")
                archive.writestr("a/version", "3")
            self.refuses(name, "a.pt")

    def test_as_an_item_of_dcp(self):
        """What .metadata says is sound; the bytes of `step` are a pickle of ours."""
        import io
        import zipfile

        shutil.copytree(STORED / "dcp_2.15.0", self.dir / "dcp")
        path = self.dir / "dcp" / ".metadata"
        sound = path.read_bytes()
        for name, content in attacks(self.proof).items():
            item = io.BytesIO()
            with zipfile.ZipFile(item, "w") as archive:
                archive.writestr("a/data.pkl", content)
                archive.writestr("a/version", "3")
            (self.dir / "dcp" / "attack.distcp").write_bytes(item.getvalue())
            metadata = pickle.loads(sound)
            for index, info in metadata.storage_data.items():
                if index.fqn == "step":
                    info.relative_path, info.offset, info.length = (
                        "attack.distcp",
                        0,
                        len(item.getvalue()),
                    )
            path.write_bytes(pickle.dumps(metadata, protocol=4))
            self.refuses(name, "dcp")


class BadInput(CommandTest):
    def test_what_is_no_checkpoint(self):
        self.refused("audit", "none", names=["none", "No such file"])
        self.write("empty.pt", b"")
        self.refused("audit", "empty.pt", names=["empty.pt"])
        self.write("text.pt", b"hello, this is text, and no checkpoint")
        self.refused("audit", "text.pt", names=["text.pt"])
        self.write("old.pt", pickle.dumps(torch.serialization.MAGIC_NUMBER, 2))
        self.refused("audit", "old.pt", names=["old.pt", "before PyTorch 1.6"])
        (self.dir / "folder").mkdir()
        self.refused("audit", "folder", names=["folder", "expected"])

    def test_a_torchscript_archive(self):
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), self.dir / "script.pt")
        self.refused("audit", "script.pt", names=["script.pt", "not compressed"])

    def test_compressed_entries(self):
        import zipfile

        with zipfile.ZipFile(self.dir / "a.pt", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a/data.pkl", pickle.dumps([0] * 1000, 2))
        self.refused("audit", "a.pt", names=["not compressed", "'a/data.pkl'"])

    def test_a_directory_of_damaged_safetensors(self):
        """What the index names and the files do not have is damage, not an unreadable
        checkpoint."""
        from checkpoints import f32

        write_safetensors(self.dir / "model-1.safetensors", {"a": f32([2])})
        self.write("model.safetensors.index.json",
                   {"weight_map": {"a": "model-1.safetensors",
                                   "b": "model-2.safetensors"}})  # fmt: skip
        audited = self.judged("audit", ".", code=1)
        self.assertEqual([tensor["name"] for tensor in audited["tensors"]], ["a"])
        self.assertIn("model-2.safetensors", audited["damage"][0])
        (self.dir / "model-2.safetensors").write_text("version https://git-lfs.github.com/spec/v1")
        (self.dir / "model-1.safetensors").write_bytes(b"\0")
        damage = self.judged("audit", ".", code=1)["damage"]
        self.assertEqual(len(damage), 2)
        for number, line in enumerate(damage, 1):
            self.assertIn(f"names it: ./model-{number}.safetensors", line)
