"""Checkpoints: a long run writes down where it is, and goes on from there to the same bits.

In: the question a run asks (all its numbers depend on) and the exact state of its parts. Out: one
JSON file, always whole on disk, that refuses to go on with another question. Nothing is unpickled.
"""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulation._validation import shown
from simulation.sampling import Seed, seed_of

FORMAT = "sqrt-dk checkpoint 1"
SAVE_EVERY = 2.0  # seconds
_LARGEST = 2**26  # bytes; a rung takes some 2 kB

CheckpointFile = str | os.PathLike[str]


@dataclass
class Checkpoint:
    """An open checkpoint: its file, the question of the whole run, and the parts begun so far."""

    path: Path
    question: dict[str, Any]
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    saved: float = 0.0  # time.monotonic() of the last save

    @classmethod
    def open(cls, file: CheckpointFile, question: dict[str, Any]) -> "Checkpoint":
        """Return the checkpoint in `file`, written now if it does not exist.

        Raises
        ------
        ValueError
            If the file cannot be read or written, is damaged, or belongs to another question.
        """
        path = _path(file)
        if not path.exists():
            opened = cls(path, _as_written(question))
            opened.save()
            return opened
        content = _read(path)
        _require_same(path, content["question"], _as_written(question))
        return cls(path, content["question"], content["parts"], time.monotonic())

    def part(self, label: str, question: dict[str, Any]) -> "Part":
        """Return one part of the run, such as a rung of a sweep."""
        asked = _as_written(question)
        known = self.parts.setdefault(label, {"question": asked, "state": None})
        _require_same(self.path, known["question"], asked)
        return Part(self, known)

    def save(self) -> None:
        """Write the file: whole under another name and safe on disk, then in place of the old one."""
        content = {"format": FORMAT, "question": self.question, "parts": self.parts}
        text = json.dumps({**content, "sha256": _digest(content)}, ensure_ascii=False)
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            with beside.open("w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(self.path)
        except OSError as error:
            beside.unlink(missing_ok=True)
            raise ValueError(f"`checkpoint` file {self.path} cannot be written: {error.strerror}.") from None
        self.saved = time.monotonic()


@dataclass
class Part:
    """One part of a checkpoint: the state it was left in, or None, and how to keep a new one."""

    checkpoint: Checkpoint
    entry: dict[str, Any]

    def restored(self, read: Callable[[dict[str, Any]], Any]) -> Any:
        """Return what `read` makes of the state kept last; None if there is none.

        Raises
        ------
        ValueError
            If `read` cannot make sense of it.
        """
        if self.entry["state"] is None:
            return None
        try:
            return read(self.entry["state"])
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(self.checkpoint.path, str(error)) from None

    def keep(self, state: Callable[[], dict[str, Any]], *, now: bool = False) -> None:
        """Write the state down, if the last time is a while ago or it has to be `now`."""
        if now or time.monotonic() - self.checkpoint.saved >= SAVE_EVERY:
            self.entry["state"] = state()
            self.checkpoint.save()


def part_of(checkpoint: Checkpoint | CheckpointFile | None, label: str, question: dict[str, Any]) -> Part | None:
    """Return a part of an open checkpoint, or the only part of one in a file."""
    if checkpoint is None:
        return None
    opened = checkpoint if isinstance(checkpoint, Checkpoint) else Checkpoint.open(checkpoint, question)
    return opened.part(label, question)


def seed_for(rng: Seed, checkpoint: Checkpoint | CheckpointFile | None) -> int:
    """Return the seed of a run: that of its checkpoint if none is asked for, else as `seed_of`."""
    if rng is None and checkpoint is not None and not isinstance(checkpoint, Checkpoint):
        rng = stored_seed(checkpoint)
    return seed_of(rng)


def stored_seed(file: CheckpointFile) -> int | None:
    """Return the seed of the run in `file`, or None if the file does not exist."""
    path = _path(file)
    if not path.exists():
        return None
    seed = _read(path)["question"].get("seed")
    if type(seed) is not int:
        raise _damaged(path, "it holds no seed")
    return seed


def _path(file: CheckpointFile) -> Path:
    try:
        return Path(file).resolve()
    except (TypeError, ValueError, OSError):
        raise ValueError(f"`checkpoint` must be the name of a file; received {shown(file)}.") from None


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint file, or raise ValueError."""
    try:
        size = path.stat().st_size
        text = path.read_text(encoding="utf-8") if path.is_file() and size <= _LARGEST else ""
    except OSError as error:
        raise ValueError(f"`checkpoint` file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        text = ""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise _damaged(path, "it is no checkpoint of this version, or only a part of one")
    digest = content.pop("sha256", None)
    if digest != _digest(content):
        raise _damaged(path, "its checksum does not match its content")
    return content


def _digest(content: dict[str, Any]) -> str:
    import hashlib  # some milliseconds, which only a run with a checkpoint should pay

    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, why: str) -> ValueError:
    return ValueError(f"`checkpoint` file {path} cannot be continued: {why}. It was left as it is; name another file.")


def _as_written(question: dict[str, Any]) -> dict[str, Any]:
    """Return the question as JSON gives it back."""
    result: dict[str, Any] = json.loads(json.dumps(question))
    return result


def _require_same(path: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise ValueError if two questions differ, naming how."""
    differing = [name for name in sorted({*there, *here}) if there.get(name) != here.get(name)]
    if differing:
        told = ", ".join(
            f"{name} is {shown(there.get(name))} there and {shown(here.get(name))} here" for name in differing
        )
        raise ValueError(
            f"`checkpoint` file {path} belongs to another question: {told}. Name another file, or ask the same again."
        )
