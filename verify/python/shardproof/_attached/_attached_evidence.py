"""Where the evidence of an attached job lies, and which of its processes have ended.

    FOLDER/JOB/run.json, values/        of the first model, as `shardproof report` reads it
    FOLDER/JOB/model1/ ...              of further ones
    FOLDER/JOB/models/0, 1, ...         what each of these is, by which ranks come to the same one
    FOLDER/JOB/ranks/K.began, K.ended   of each rank's process

All ranks come to one JOB through the store of their process group: no collective is made, and none
waits for another.
"""

import collections
import contextlib
import json
import os
import pathlib
import socket
import time
import uuid

from .._observing._evidence import Writer, begun_by_script, on_one_axis
from .._phases import VALUES

_KEY = "shardproof/attached"


def name_of_job(store=None) -> str:
    """One name on all ranks of a store; without one, that of a job of this process alone."""
    own = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:6]}"
    if store is None:
        return own
    return store.compare_set(_KEY, "", own).decode()


class Records:
    """What this process leaves of its job. folder: FOLDER/JOB."""

    def __init__(self, folder: pathlib.Path, rank: int, world_size: int, launch: str):
        self.folder, self.rank, self.world_size = folder, rank, world_size
        self._of_models: list[Writer] = []
        self._kinds = collections.Counter()
        self._ended = False
        (folder / "ranks").mkdir(parents=True, exist_ok=True)
        self._note("began", pid=os.getpid(), host=socket.gethostname(), launch=launch,
                   world_size=world_size)  # fmt: skip

    def add_model(self, place, kind: str = "") -> Writer:
        """kind: what ranks say alike of a model that they have a part in. \\returns the writer
        of the next model of this kind."""
        name = f"{kind} {self._kinds[kind]}"
        self._kinds[kind] += 1
        return self._open(_number_of(self.folder / "models", name, self.rank), place)

    def _open(self, number, place) -> Writer:
        folder = folder_of_model(self.folder, number)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
        if not (folder / "run.json").exists():
            _write_run(folder, place)
        writer = begun_by_script(folder, place)
        self._of_models.append(writer)
        return writer

    def error(self, stage: str, code: str, kind: str, message: str):
        """Puts an error on record, of the job ("subject") or of ours ("internal")."""
        for writer in self._of_models:
            writer.failure(stage, code, kind, message)

    def end(self, place, code: int, failure=None):
        """Closes the evidence, of which all ranks have some of the first model, if only that they
        were there. failure: the arguments of error(), if the job failed here."""
        if self._ended:
            return
        self._ended = True
        if not self._of_models:
            self._open(0, place)
        if failure is not None:
            self.error(*failure)
        for writer in self._of_models:
            writer.end()
        self._note("ended", code=code)

    def leave(self):
        """The process group was left in order: whoever ends the process now ends no part of the
        job."""
        self._note("left")

    def join_again(self):
        (self.folder / "ranks" / f"{self.rank}.left").unlink(missing_ok=True)

    def _note(self, what, **fields):
        path = self.folder / "ranks" / f"{self.rank}.{what}"
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(fields))
        partial.rename(path)


def folder_of_model(folder: pathlib.Path, number: int) -> pathlib.Path:
    return folder if number == 0 else folder / f"model{number}"


def _number_of(claims: pathlib.Path, name: str, rank: int) -> int:
    """The number of the model of that name: under which a rank has put it down, or the next."""
    claims.mkdir(exist_ok=True)
    own = claims / f".{rank}"
    own.write_text(name)
    number = 0
    while True:
        try:
            os.link(own, claims / str(number))
        except FileExistsError:
            if (claims / str(number)).read_text() != name:
                number += 1
                continue
        own.unlink()
        return number


def _write_run(folder, place):
    from .._observing._script import write_run

    write_run(folder, place, None, why="a script that shardproof.run attached to")


def fill_absent(folder: pathlib.Path):
    """A rank that had no part in a model says so, once all have ended; and the evidence of
    one that left its process group in order and was ended by others is complete."""
    began = _notes(folder, "began")
    for rank in _notes(folder, "left").keys() - _notes(folder, "ended").keys():
        for of_model in models_in(folder):
            _complete(of_model / VALUES / f"rank_{rank}.facts.jsonl")
    for number in range(len(models_in(folder))):
        for rank, note in began.items():
            of_model = folder_of_model(folder, number)
            if not (of_model / VALUES / f"rank_{rank}.facts.jsonl").exists():
                begun_by_script(of_model, on_one_axis(rank, note["world_size"])).end()


def _complete(facts: pathlib.Path):
    text = facts.read_text() if facts.exists() else ""
    lines = text.splitlines()
    if text.endswith("\n") and json.loads(lines[-1])["record"] != "end":
        with facts.open("a") as file:
            file.write(json.dumps({"record": "end", "lines": len(lines) + 1}) + "\n")


def models_in(folder: pathlib.Path) -> list[pathlib.Path]:
    """Folders of evidence, one a model."""
    found = []
    while ((next_one := folder_of_model(folder, len(found))) / "run.json").exists():
        found.append(next_one)
    return found


def has_stages(folder: pathlib.Path) -> bool:
    """Whether any rank observed anything of a model."""
    for path in (folder / VALUES).glob("rank_*.facts.jsonl"):
        with path.open() as lines:
            if any('"record":"stage"' in line for line in lines):
                return True
    return False


def running(folder: pathlib.Path) -> list[int]:
    """Ranks that have not ended, as far as can be told from this host."""
    began, ended = _notes(folder, "began"), _notes(folder, "ended")
    world_size = max((note["world_size"] for note in began.values()), default=0)
    return [
        rank
        for rank in range(world_size)
        if rank not in ended and not (rank in began and _is_gone(began[rank]))
    ]


def launches_of(folder: pathlib.Path) -> set[str]:
    return {note["launch"] for note in _notes(folder, "began").values()}


def _is_gone(note) -> bool:
    if note["host"] != socket.gethostname():
        return False
    try:
        os.kill(note["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return _is_zombie(note["pid"])


def _is_zombie(pid) -> bool:
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rsplit(")", 1)[1].split()[0] == "Z"


def _notes(folder, what) -> dict[int, dict]:
    found = {}
    for path in (folder / "ranks").glob(f"*.{what}"):
        with contextlib.suppress(OSError, ValueError):
            found[int(path.stem)] = json.loads(path.read_text())
    return found
