"""`voxgate voices add`: one more voice for a ChatTTS release, from a speaker string or a recording.

The engine reads `voices.json` beside `asset/` when it starts and when it is told to, and checks it
then; here is checked what can be told without loading the model.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
import wave
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from engine.api import SAMPLE_RATE
from gateway.commands.console import CommandError, stderr

VOICES = "voices.json"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SECONDS = (1.0, 20.0)
_LEAST_SPEAKER_CHARS = 64
"""A vector of 768 numbers, compressed and written in CJK characters, has hundreds."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("id", help="how sessions ask for it")
    parser.add_argument(
        "--checkpoint",
        metavar="DIR",
        required=True,
        help="the release: the folder that holds asset/",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--speaker", metavar="TEXT", help="a ChatTTS speaker string, or - for stdin"
    )
    source.add_argument("--audio", metavar="FILE", help="16-bit mono WAV at 24 kHz, 1 to 20 s")
    parser.add_argument("--text", help="the words that the recording says; needed with --audio")
    parser.add_argument("--name", help="for people; default: the id")
    parser.add_argument("--language", action="append", choices=("en", "zh"), help="default: both")
    parser.add_argument("--gender", choices=("female", "male", "unknown"), default="unknown")
    parser.add_argument("--description", default="")
    parser.add_argument("--replace", action="store_true", help="if there is one of this id")


def run(arguments: Namespace) -> int:
    release = Path(arguments.checkpoint)
    if not (release / "asset").is_dir():
        raise CommandError(
            f"{release} holds no asset/: voices are added to ChatTTS releases. The embedded voice "
            "is made with its speakers and takes no others."
        )
    if not _ID.fullmatch(arguments.id):
        raise CommandError("An id has letters, digits, - and _, at most 40.")
    listed = _read(release / VOICES)
    if arguments.id in listed and not arguments.replace:
        raise CommandError(f"There is a voice {arguments.id} already; --replace takes its place.")
    entry: dict[str, Any] = {"name": arguments.name or arguments.id, "gender": arguments.gender}
    if arguments.language:
        entry["languages"] = list(dict.fromkeys(arguments.language))
    if arguments.description:
        entry["description"] = arguments.description
    entry |= _recording(arguments, release) if arguments.audio else _speaker(arguments)
    _write(release / VOICES, {**listed, arguments.id: entry})
    stderr().print(
        f"Voice {arguments.id} is in {release / VOICES}. A gateway that runs takes it on SIGHUP; "
        "sessions that are open keep the voices they have.",
        markup=False,
    )
    return 0


def _speaker(arguments: Namespace) -> dict[str, Any]:
    text = arguments.speaker
    if text == "-":
        text = sys.stdin.read()
    text = text.strip()
    if len(text) < _LEAST_SPEAKER_CHARS or any(each.isspace() for each in text):
        raise CommandError("This is no speaker string: it has hundreds of characters and no space.")
    if arguments.text:
        raise CommandError("--text is what a recording says; a speaker string says nothing.")
    return {"speaker": text}


def _recording(arguments: Namespace, release: Path) -> dict[str, Any]:
    if not (arguments.text or "").strip():
        raise CommandError("--audio needs --text: the words that the recording says.")
    source = Path(arguments.audio)
    try:
        with wave.open(str(source), "rb") as file:
            form = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            seconds = file.getnframes() / file.getframerate()
    except (wave.Error, EOFError) as failure:
        raise CommandError(f"{source} is no WAV file: {failure}") from None
    if form != (1, 2, SAMPLE_RATE):
        raise CommandError(
            f"{source} has {form[0]} channels, {8 * form[1]} bits, {form[2]} Hz. Convert it:  "
            f"ffmpeg -i {source} -ac 1 -ar {SAMPLE_RATE} -sample_fmt s16 new.wav"
        )
    if not _SECONDS[0] <= seconds <= _SECONDS[1]:
        least, most = _SECONDS
        raise CommandError(f"{source} has {seconds:.1f} s; {least:g} to {most:g} are used.")
    shutil.copyfile(source, release / f"{arguments.id}.wav")
    return {"reference_audio": f"{arguments.id}.wav", "reference_text": arguments.text.strip()}


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as failure:
        raise CommandError(f"{path} is not JSON: {failure}") from None
    if not isinstance(listed, dict):
        raise CommandError(f"{path} must hold one object of voices.")
    return listed


def _write(path: Path, listed: dict[str, Any]) -> None:
    """In one step, so that no engine reads half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(listed, file, ensure_ascii=False, indent=2)
        file.write("\n")
    Path(name).chmod(0o644)
    Path(name).replace(path)
