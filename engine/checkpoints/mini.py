"""The embedded voice: a small model of the ChatTTS architecture, speaker prompt first.

A prompt is `[speaker]`, then utterances of one voice: the reference, padded to whole KV blocks so
that every piece of the voice starts from cached blocks; perhaps the pieces before this one in the
turn; last the piece itself, whose frames the model writes.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from engine.align.network import AlignmentNetwork
from engine.align.piece import PieceAlignment
from engine.align.words import spoken_words
from engine.api import EngineLimits, Language, SpeechError, SpeechRequest, Voice
from engine.checkpoints.base import (
    CheckpointError,
    CodeSampling,
    PiecePlan,
    PromptContext,
    Registrar,
)
from engine.checkpoints.mini_voices import Layout, Reference, Voices
from engine.frontend.language import Spoken
from engine.frontend.phonemes import Alphabet
from engine.frontend.text import Reading, TextFrontend
from engine.lm_config import LmConfig

if TYPE_CHECKING:
    from engine.codec.model import Codec

FORMAT = 1
MAX_TEXT_CHARS = 400
MAX_PHONEMES = 300
"""About 15 s of speech, as long as the longest utterance of the training."""
MAX_CONTEXT = 840
"""Positions of the pieces before, about 12 s of speech and its phonemes."""
MAX_CONTEXT_PIECES = 2
_EDGES = 6
"""Frames around the phonemes of a piece."""
_SHORTEST, _LONGEST_SHARE = 0.7, 3
"""Of the expected frames. Of 900 held-out pieces none was right below 0.68; one that left out its
second sentence ended at 0.65, which masking the end until 0.7 prevents."""
_LESS_FRAMES, _MORE_FRAMES = 10, 48
"""Beyond these shares: a single word varies more."""
_LONGEST = 1100
"""Frames, 23 s: together with prompt and context below the model's 2048 positions."""
_FILES = (
    "config.json",
    "voices.json",
    "phonemes.json",
    "codec.safetensors",
    "lm/config.json",
    "lm/model.safetensors",
)


class MiniCheckpoint:
    """`engine.checkpoints.base.Checkpoint` of a packed voice (see training/pack.py)."""

    decode_from: Literal["codes", "hidden"] = "codes"

    def __init__(self, folder: Path) -> None:
        """Raises `CheckpointError` naming every missing file or the one that is wrong."""
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise CheckpointError(f"{folder} is no packed voice: it lacks {', '.join(missing)}.")
        self._folder = folder
        self._config = _read(folder / "config.json")
        if self._config.get("format") != FORMAT:
            found = self._config.get("format")
            raise CheckpointError(f"{folder} has format {found!r}; this version reads {FORMAT}.")
        tokens = self._config["tokens"]
        self._layout = Layout(
            tokens["start_text"],
            tokens["start_codes"],
            tokens["first_speed"],
            tuple(tokens["speeds"]),
        )
        lm = _read(folder / "lm" / "config.json")
        self._alphabet = Alphabet(_read(folder / "phonemes.json"))
        self._lm = LmConfig.from_dict(lm["voxgate"], vocab_size=lm["vocab_size"])
        self._voices = Voices(_read(folder / "voices.json"), self._layout, self._alphabet, self._lm)
        aligner = folder / "aligner.safetensors"
        self.aligner = AlignmentNetwork.load(aligner) if aligner.exists() else None
        self._speakers: dict[tuple[str, str], list[int]] = {}
        self._frontend = _in_background(self._alphabet)

    @classmethod
    def embedded(cls) -> MiniCheckpoint:
        """The voice that comes with the package."""
        import engine.voices

        return cls(Path(engine.voices.__file__).parent / "mini")

    @classmethod
    def load(cls, folder: Path) -> MiniCheckpoint:
        return cls(folder)

    def model_dir(self) -> Path:
        return self._folder / "lm"

    def codec(self) -> Codec:
        from safetensors.torch import load_file

        from engine.codec.model import Codec

        return Codec.from_mini(self._config, load_file(self._folder / "codec.safetensors"))

    def voices(self) -> Sequence[Voice]:
        return self._voices.listed()

    def limits(self, max_streams: int) -> EngineLimits:
        return EngineLimits(
            max_text_chars=MAX_TEXT_CHARS,
            max_streams=max_streams,
            min_speed=min(self._layout.speeds),
            max_speed=max(self._layout.speeds),
        )

    def reference(self, voice: str, language: Spoken) -> Reference:
        """What a voice said in a language. Raises `SpeechError("unknown_voice")`."""
        return self._voices.references[self._voices.resolve(voice, language)]

    def register(self, registrar: Registrar) -> None:
        for key, reference in self._voices.references.items():
            frames = registrar.register_frames(reference.padded(registrar.block_size))
            self._speakers[key] = [*reference.head, *frames]
        self._frontend.result()

    def warm_prompts(self) -> list[list[int]]:
        # One id more than the whole blocks: the last position of a prompt is always computed anew.
        return [[*prompt, self._layout.start_text] for prompt in self._speakers.values()]

    def read(self, text: str, language: Language = "auto") -> Reading:
        """How the voice reads a text. Raises `SpeechError`, see `TextFrontend.read`."""
        return self._frontend.result().read(text, language)

    def sounds(self, word: str, language: Spoken) -> str:
        """Phonemes of a word by itself, "" of one that has no sound."""
        return self._frontend.result().sounds(word, language)

    def expected_frames(self, reading: Reading, voice: str, speed: float = 1.0) -> int:
        """About how many frames the voice takes to say it."""
        pace = self.reference(voice, reading.language).pace
        factor = self._layout.speeds[self._layout.speed(speed)]
        return round((pace * len(reading.phonemes) + _EDGES) / factor)

    def plan(self, request: SpeechRequest) -> PiecePlan:
        """The prompt of one piece. Speed is rounded to the nearest trained one.

        Raises `SpeechError`: `unknown_voice`, `bad_speed`, `unsupported_language`, `empty_text`,
        `unpronounceable`, `text_too_long`.
        """
        self._check(request)
        reading = self.read(request.text, request.language)
        phonemes = self._alphabet.encode(reading.phonemes)
        if len(phonemes) > MAX_PHONEMES:
            raise SpeechError(
                "text_too_long",
                f"The piece is {len(phonemes)} phonemes long; at most {MAX_PHONEMES} can be spoken "
                "at once. Cut it.",
            )
        voice, language = self._voices.resolve(request.voice, reading.language)
        speaker = self._speakers[voice, language]
        reference = self._voices.references[voice, language]
        # Every utterance of the training begins with the same frame of silence: given instead of
        # drawn, it saves a step before the first sound.
        lead = speaker[len(reference.head)]
        piece = (*self._layout.piece(phonemes, self._layout.speed(request.speed)), lead)
        context = _usable(request.context, voice)
        expected = self.expected_frames(reading, voice, request.speed)
        return PiecePlan(
            prompt=[*speaker, *context, *piece],
            sampling=self._sampling(request, expected),
            voice=voice,
            continuation=self._continuation(context, piece, expected),
            expected_frames=expected,
            lead=reference.codes[:1],
            reading=reading,
        )

    def alignment(self, request: SpeechRequest, plan: PiecePlan) -> PieceAlignment | None:
        """See `AligningCheckpoint`. A voice that was packed without an aligner has none."""
        return None if plan.reading is None else self.alignment_of(request.text, plan.reading)

    def alignment_of(self, text: str, reading: Reading) -> PieceAlignment | None:
        """Of a text and how it is read."""
        if self.aligner is None:
            return None
        words = spoken_words(
            text, reading.phonemes, lambda word: self.sounds(word, reading.language)
        )
        symbols = self._alphabet.encode(reading.phonemes)
        return PieceAlignment(self.aligner, symbols, words, self._lm.sampled_codebooks)

    def _check(self, request: SpeechRequest) -> None:
        slowest, fastest = min(self._layout.speeds), max(self._layout.speeds)
        if not slowest <= request.speed <= fastest:
            raise SpeechError("bad_speed", f"Speed must lie in {slowest} to {fastest}.")
        if request.language not in get_args(Language):
            raise SpeechError("unsupported_language", "The language must be auto, en or zh.")
        if len(request.text) > MAX_TEXT_CHARS:
            raise SpeechError(
                "text_too_long", f"A piece has at most {MAX_TEXT_CHARS} characters. Cut it."
            )

    def _continuation(
        self, context: tuple[int, ...], piece: tuple[int, ...], expected: int
    ) -> tuple[int, ...]:
        """What the next piece is to follow: the turn so far, whose blocks are cached already, or
        when that grows too long this piece alone."""
        pieces = context.count(self._layout.start_text) + 1
        room = len(context) + len(piece) + expected <= MAX_CONTEXT
        return (*context, *piece) if room and pieces <= MAX_CONTEXT_PIECES else piece

    def _sampling(self, request: SpeechRequest, expected: int) -> CodeSampling:
        asked, usual = request.sampling, self._config["sampling"]

        def pick(name: str) -> Any:
            value = getattr(asked, name)
            return usual[name] if value is None else value

        shortest = max(2, round(_SHORTEST * expected) - _LESS_FRAMES)
        longest = min(_LONGEST_SHARE * expected + _MORE_FRAMES, _LONGEST)
        return CodeSampling(
            temperature=pick("temperature"),
            top_p=pick("top_p"),
            top_k=pick("top_k"),
            repetition_penalty=pick("repetition_penalty"),
            repetition_window=pick("repetition_window"),
            min_frames=shortest if asked.min_frames is None else asked.min_frames,
            max_frames=longest if asked.max_frames is None else min(asked.max_frames, _LONGEST),
            seed=secrets.randbits(31) if request.seed is None else request.seed,
        )


def _usable(context: object, voice: str) -> tuple[int, ...]:
    """The pieces before, when the same voice spoke them and they are not too long."""
    if not isinstance(context, PromptContext) or context.voice != voice:
        return ()
    return context.tokens if len(context.tokens) <= MAX_CONTEXT else ()


def _in_background(alphabet: Alphabet) -> Future[TextFrontend]:
    """The lexicons load while vLLM starts, which takes longer."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="frontend")
    frontend = pool.submit(TextFrontend, alphabet)
    pool.shutdown(wait=False)
    return frontend


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{path} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} must hold a JSON object.")
    return content
