"""The embedded voice: a small model of the ChatTTS architecture, speaker prompt first.

Layout of a prompt (ids): `[speaker]`, then for each utterance of the same voice
`[start_text] [speed] phonemes.. [start_codes] frames..`: the reference, padded to whole KV blocks
so that every piece of the voice starts from cached blocks; perhaps the previous piece of the turn;
last the piece itself, whose frames the model writes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from engine.api import (
    SAMPLE_RATE,
    SAMPLES_PER_FRAME,
    EngineLimits,
    Language,
    SpeechError,
    SpeechRequest,
    Voice,
)
from engine.checkpoints.base import (
    CheckpointError,
    Codes,
    CodeSampling,
    PiecePlan,
    PromptContext,
    Registrar,
)
from engine.frontend.language import Spoken
from engine.frontend.phonemes import Alphabet
from engine.frontend.text import Reading, TextFrontend

if TYPE_CHECKING:
    from engine.codec.model import Codec

DEFAULT_VOICE = "default"
MAX_PHONEMES = 300
"""About 16 s of speech; the training utterances ended at 15.5 s."""
MAX_TEXT_CHARS = 400
MIN_SPEED, MAX_SPEED = 0.5, 2.0
MAX_CONTEXT_POSITIONS = 800
"""A previous piece of about 12 s: 560 frames and its phonemes."""
_FILES = ("config.json", "voices.json", "phonemes.json", "codec.safetensors", "lm/config.json",
          "lm/model.safetensors")  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Tokens:
    start_text: int
    start_codes: int
    first_speed: int
    speeds: tuple[float, ...]

    def speed(self, factor: float) -> int:
        """The trained speed nearest to `factor`."""
        nearest = min(range(len(self.speeds)), key=lambda i: abs(self.speeds[i] - factor))
        return self.first_speed + nearest


@dataclass(frozen=True, slots=True)
class _Reference:
    """What a voice said, in one language: `head` is ids up to the first frame."""

    head: tuple[int, ...]
    codes: Codes


class MiniCheckpoint:
    """`engine.checkpoints.base.Checkpoint` of a packed voice (see training/pack.py).

    Raises `CheckpointError` naming every missing file.
    """

    decode_from: Literal["codes", "hidden"] = "codes"

    def __init__(self, folder: Path) -> None:
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise CheckpointError(f"{folder} is no packed voice: it lacks {', '.join(missing)}.")
        self._folder = folder
        self._config = _read(folder / "config.json")
        if self._config.get("format") != 1:
            raise CheckpointError(f"{folder} has format {self._config.get('format')!r}, not 1.")
        lm = _read(folder / "lm" / "config.json")["voxgate"]
        self._codebooks: int = lm["codebooks"]
        self._sampled: list[int] = lm["sampled_codebooks"]
        self._fixed = {int(i): code for i, code in lm["fixed_codes"].items()}
        tokens = self._config["tokens"]
        self._tokens = _Tokens(
            tokens["start_text"],
            tokens["start_codes"],
            tokens["first_speed"],
            tuple(tokens["speeds"]),
        )
        self._alphabet = Alphabet.load(folder / "phonemes.json")
        catalogue = _read(folder / "voices.json")
        self._default: dict[Spoken, str] = catalogue["default"]
        self._cards: list[dict[str, Any]] = catalogue["voices"]
        self._references = {
            (card["id"], language): self._reference(card["speaker_token"], prompt)
            for card in self._cards
            for language, prompt in card["prompts"].items()
        }
        self._speakers: dict[tuple[str, str], list[int]] = {}
        self._frontend = _in_background(lambda: TextFrontend(self._alphabet))

    @classmethod
    def embedded(cls) -> MiniCheckpoint:
        """The voice that comes with the package."""
        import engine.voices

        return cls(Path(engine.voices.__file__).parent / "mini")

    @classmethod
    def load(cls, folder: Path) -> MiniCheckpoint:
        return cls(folder)

    # -- what there is ---------------------------------------------------------------------------

    def model_dir(self) -> Path:
        return self._folder / "lm"

    def codec(self) -> Codec:
        from safetensors.torch import load_file

        from engine.codec.model import Codec

        return Codec.from_mini(self._config, load_file(self._folder / "codec.safetensors"))

    def voices(self) -> Sequence[Voice]:
        named = [
            Voice(
                card["id"], card["name"], tuple(card["languages"]), card["gender"],
                card["description"],
            )
            for card in self._cards
        ]  # fmt: skip
        names = {card["id"]: card["name"] for card in self._cards}
        chosen = " and ".join(f"{names[v]} ({language})" for language, v in self._default.items())
        automatic = Voice(
            DEFAULT_VOICE,
            "Automatic",
            tuple(self._default),
            description=f"By the language of each piece: {chosen}.",
        )
        return [automatic, *named]

    def limits(self, max_streams: int) -> EngineLimits:
        return EngineLimits(
            max_text_chars=MAX_TEXT_CHARS,
            max_streams=max_streams,
            min_speed=MIN_SPEED,
            max_speed=MAX_SPEED,
        )

    # -- speaker prompts -------------------------------------------------------------------------

    def register(self, registrar: Registrar) -> None:
        for key, reference in self._references.items():
            codes = _padded(reference.codes, len(reference.head), registrar.block_size)
            self._speakers[key] = [*reference.head, *registrar.register_frames(codes)]
        self._frontend.result()

    def warm_prompts(self) -> list[list[int]]:
        return [[*prompt, self._tokens.start_text] for prompt in self._speakers.values()]

    def _reference(self, speaker: int, prompt: dict[str, Any]) -> _Reference:
        head = (
            speaker,
            self._tokens.start_text,
            self._tokens.first_speed + prompt["speed"],
            *self._alphabet.encode(prompt["phonemes"]),
            self._tokens.start_codes,
        )
        drawn = np.asarray(prompt["codes"], np.int16)
        codes = np.empty((len(drawn), self._codebooks), np.int16)
        codes[:, self._sampled] = drawn
        for codebook, code in self._fixed.items():
            codes[:, codebook] = code
        return _Reference(head, codes)

    def _speaker(self, voice: str, language: Spoken) -> list[int]:
        """The prompt of the voice in the piece's language, else in the one it has."""
        key: tuple[str, str] = (voice, language)
        if key not in self._speakers:
            key = next(k for k in self._speakers if k[0] == voice)
        return self._speakers[key]

    # -- one piece -------------------------------------------------------------------------------

    def read(self, text: str, language: Language = "auto") -> Reading:
        """How the voice reads a text. Raises `SpeechError`, see `TextFrontend.read`."""
        return self._frontend.result().read(text, language)

    def expected_seconds(self, reading: Reading, voice: str, speed: float = 1.0) -> float:
        """About how long the voice takes to say it."""
        frames = self._expected(len(reading.phonemes), speed)
        return frames * SAMPLES_PER_FRAME / SAMPLE_RATE

    def plan(self, request: SpeechRequest) -> PiecePlan:
        """Raises `SpeechError`: `unknown_voice`, `empty_text`, `unpronounceable`, `text_too_long`,
        `bad_speed`."""
        if request.voice != DEFAULT_VOICE and all(c["id"] != request.voice for c in self._cards):
            known = ", ".join([DEFAULT_VOICE, *(card["id"] for card in self._cards)])
            raise SpeechError("unknown_voice", f"No voice {request.voice!r}; there are {known}.")
        if not MIN_SPEED <= request.speed <= MAX_SPEED:
            raise SpeechError("bad_speed", f"Speed must be {MIN_SPEED} to {MAX_SPEED}.")
        if len(request.text) > MAX_TEXT_CHARS:
            raise SpeechError(
                "text_too_long", f"A piece has at most {MAX_TEXT_CHARS} characters; cut it."
            )
        reading = self.read(request.text, request.language)
        phonemes = self._alphabet.encode(reading.phonemes)
        if len(phonemes) > MAX_PHONEMES:
            raise SpeechError(
                "text_too_long",
                f"The piece is {len(phonemes)} phonemes long and at most {MAX_PHONEMES} can be "
                "spoken at once; cut it.",
            )
        automatic = request.voice == DEFAULT_VOICE
        voice = self._default[reading.language] if automatic else request.voice
        piece = (
            self._tokens.start_text,
            self._tokens.speed(request.speed),
            *phonemes,
            self._tokens.start_codes,
        )
        context = _usable(request.context, voice)
        return PiecePlan(
            prompt=[*self._speaker(voice, reading.language), *context, *piece],
            sampling=self._sampling(request, len(phonemes)),
            voice=voice,
            continuation=piece,
            expected_frames=self._expected(len(phonemes), request.speed),
        )

    def _expected(self, phonemes: int, speed: float) -> int:
        return round((3.4 * phonemes + 12) / self._tokens.speeds[self._speed_index(speed)])

    def _speed_index(self, factor: float) -> int:
        return self._tokens.speed(factor) - self._tokens.first_speed

    def _sampling(self, request: SpeechRequest, phonemes: int) -> CodeSampling:
        asked, usual = request.sampling, self._config["sampling"]
        expected = self._expected(phonemes, request.speed)

        def pick(name: str) -> Any:
            value = getattr(asked, name)
            return usual[name] if value is None else value

        return CodeSampling(
            temperature=pick("temperature"),
            top_p=pick("top_p"),
            top_k=pick("top_k"),
            repetition_penalty=pick("repetition_penalty"),
            repetition_window=pick("repetition_window"),
            min_frames=max(2, expected // 4) if asked.min_frames is None else asked.min_frames,
            max_frames=3 * expected + 20 if asked.max_frames is None else asked.max_frames,
            seed=secrets.randbits(31) if request.seed is None else request.seed,
        )


def _usable(context: object, voice: str) -> tuple[int, ...]:
    """The previous piece when it is of the same voice and short enough, else nothing."""
    if not isinstance(context, PromptContext) or context.voice != voice:
        return ()
    return context.tokens if len(context.tokens) <= MAX_CONTEXT_POSITIONS else ()


def _padded(codes: Codes, head: int, block: int) -> Codes:
    """The reference with its silent end held until `head` and frames fill whole blocks."""
    missing = -(head + len(codes)) % block
    return np.concatenate([codes, np.repeat(codes[-1:], missing, axis=0)])


def _in_background(load: Any) -> Future[TextFrontend]:
    """Lexicons load while vLLM starts, which takes longer."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="frontend")
    future = pool.submit(load)
    pool.shutdown(wait=False)
    return future


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object.")
    return content
