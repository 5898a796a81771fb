"""Voices of a ChatTTS release: what `voices.json` beside `asset/` names, and random speakers.

    {"anna": {"speaker": "<speaker text>" or "speaker_file": "anna.txt",
              "reference_text": "what the sample says",
              "reference_codes": "<codes text>" or "reference_audio": "anna.wav",
              "name": "Anna", "languages": ["en", "zh"], "gender": "female", "description": ""}}

Every key is optional, files are found beside `voices.json`. `speaker` alone is a speaker vector;
a reference is a sample whose codes the model continues (16-bit mono WAV at 24 kHz, a few seconds).
"""

from __future__ import annotations

import json
import wave
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.api import SAMPLE_RATE, Pcm, Voice
from engine.checkpoints.base import Codes
from engine.checkpoints.chattts_layout import STATISTICS, Sizes
from engine.checkpoints.speaker_vectors import (
    SpeakerStatistics,
    Vector,
    decode_codes,
    decode_vector,
    read_speaker_file,
)

VOICES = "voices.json"
DEFAULT_VOICE = "default"
LANGUAGES = ("en", "zh")
_KEYS = {
    *("speaker", "speaker_file", "reference_text", "reference_codes", "reference_audio"),
    *("name", "languages", "gender", "description"),
}
_MAX_REFERENCE_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Reference:
    """A sample of a voice: what it says, and its codes or its recording."""

    text: str
    codes: Codes | None = None
    recording: Pcm | None = None

    def as_codes(self, encode: Callable[[Pcm], Codes]) -> Codes:
        if self.codes is not None:
            return self.codes
        assert self.recording is not None
        return encode(self.recording)

    def sounds_as(self, other: Reference) -> bool:
        return self.text == other.text and all(
            np.array_equal(mine, its) if mine is not None and its is not None else mine is its
            for mine, its in ((self.codes, other.codes), (self.recording, other.recording))
        )


@dataclass(frozen=True, slots=True)
class ChatTTSVoice:
    """A voice and what makes it: a speaker vector, a reference, both, or neither."""

    card: Voice
    vector: Vector | None = None
    reference: Reference | None = None

    def sounds_as(self, other: ChatTTSVoice) -> bool:
        """Whether the same makes both of them, whatever is said of them."""
        if self.vector is None or other.vector is None:
            if self.vector is not other.vector:
                return False
        elif not np.array_equal(self.vector, other.vector):
            return False
        if self.reference is None or other.reference is None:
            return self.reference is other.reference
        return self.reference.sounds_as(other.reference)


def read_statistics(directory: Path, sizes: Sizes) -> SpeakerStatistics | None:
    """Speaker statistics of a release that has them. Raises `ValueError` when they are damaged."""
    for name in STATISTICS:
        if (directory / name).is_file():
            return SpeakerStatistics.read(directory / name, sizes.hidden)
    return None


def random_voice(statistics: SpeakerStatistics, seed: int, id: str | None = None) -> ChatTTSVoice:
    """The random speaker of `seed`."""
    card = Voice(
        id or f"random-{seed}",
        f"Random speaker {seed}",
        LANGUAGES,
        description="A speaker drawn from the release's statistics.",
    )
    return ChatTTSVoice(card, statistics.sample(seed))


def read_voices(directory: Path, sizes: Sizes) -> tuple[list[ChatTTSVoice], list[str]]:
    """The voices of `voices.json` (none without the file), and everything wrong with it."""
    path = directory / VOICES
    if not path.is_file():
        return [], []
    try:
        listed = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        return [], [f"{VOICES} is no JSON ({error})"]
    if not isinstance(listed, dict) or not all(isinstance(v, dict) for v in listed.values()):
        return [], [f"{VOICES} must map voice ids to objects"]
    voices, problems = [], []
    for id, entry in listed.items():
        try:
            voices.append(_voice(directory, id, entry, sizes))
        except (ValueError, OSError, EOFError, wave.Error) as error:
            problems.append(f"{VOICES}, voice {id!r}: {error}")
    return voices, problems


def _voice(directory: Path, id: str, entry: dict[str, Any], sizes: Sizes) -> ChatTTSVoice:
    unknown = sorted(entry.keys() - _KEYS)
    if unknown:
        raise ValueError(f"unknown keys {', '.join(unknown)}; known are {', '.join(sorted(_KEYS))}")
    wrong = [k for k, v in entry.items() if k != "languages" and not isinstance(v, str)]
    languages = entry.get("languages", list(LANGUAGES))
    if wrong or not isinstance(languages, list) or not set(languages) <= set(LANGUAGES):
        raise ValueError(f"{', '.join([*wrong, 'languages'])}: text, and a list of {LANGUAGES}")
    card = Voice(
        id,
        entry.get("name", id),
        tuple(languages),
        entry.get("gender", "unknown"),
        entry.get("description", ""),
    )
    vector = None
    if "speaker" in entry:
        vector = decode_vector(entry["speaker"], sizes.hidden)
    elif "speaker_file" in entry:
        vector = read_speaker_file(directory / entry["speaker_file"], sizes.hidden)
    return ChatTTSVoice(card, vector, _reference(directory, entry, sizes))


def _reference(directory: Path, entry: dict[str, Any], sizes: Sizes) -> Reference | None:
    text = entry.get("reference_text", "")
    if "reference_codes" in entry:
        codes = decode_codes(entry["reference_codes"], sizes.codebooks, sizes.end_code)
        reference = Reference(text, codes=codes)
    elif "reference_audio" in entry:
        reference = Reference(text, recording=_recording(directory / entry["reference_audio"]))
    elif text:
        raise ValueError("reference_text needs reference_codes or reference_audio")
    else:
        return None
    if not text.strip():
        raise ValueError("a reference needs its reference_text: the words the sample says")
    return reference


def _recording(path: Path) -> Pcm:
    with wave.open(str(path), "rb") as file:
        format = (file.getnchannels(), file.getsampwidth(), file.getframerate())
        if format != (1, 2, SAMPLE_RATE):
            raise ValueError(
                f"{path.name} has {format[0]} channels, {8 * format[1]} bits, {format[2]} Hz; "
                f"convert it: ffmpeg -i {path.name} -ac 1 -ar {SAMPLE_RATE} -sample_fmt s16 new.wav"
            )
        if file.getnframes() > _MAX_REFERENCE_SECONDS * SAMPLE_RATE:
            raise ValueError(f"{path.name} is longer than {_MAX_REFERENCE_SECONDS} s; cut it")
        raw = file.readframes(file.getnframes())
    return np.frombuffer(raw, "<i2").astype(np.float32) / np.float32(32768)
