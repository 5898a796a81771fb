"""The official ChatTTS release, served as it is.

Layout of a prompt (ids): `[Stts] speaker reference-text [speed_N] text [Ptts] reference-codes`,
where speaker is a registered vector or `[empty_spk]`. Reference codes stand after the text, so
pieces of a voice share only the head of their prompts. The previous piece of a turn continues the
reference. A text with `[oral_N]`, `[laugh_N]` or `[break_N]` is refined first: `[Sbreak] text
[Pbreak] tags` makes the model write the text it then speaks.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from engine.api import EngineLimits, Sampling, SpeechError, SpeechRequest, Voice, describe
from engine.checkpoints.base import (
    CheckpointError,
    Codes,
    CodeSampling,
    PiecePlan,
    PromptContext,
    Registrar,
)
from engine.checkpoints.chattts_release import Release
from engine.checkpoints.chattts_voices import DEFAULT_VOICE, LANGUAGES, ChatTTSVoice, random_voice
from engine.checkpoints.speaker_vectors import decode_vector, unit
from engine.frontend.chattts import ChatTTSFrontend, TokenText

if TYPE_CHECKING:
    from engine.codec.model import Codec

MAX_TEXT_CHARS = 400
MAX_TEXT_TOKENS = 400
MIN_SPEED, MAX_SPEED = 0.5, 2.0
MAX_CONTEXT_POSITIONS = 800
MAX_FRAMES = 2048
MAX_REFINED_TOKENS = 384
FRAMES_PER_TOKEN = 12
_MIN_SPEAKER_TEXT = 64
"""Voice names are shorter, texts of speaker vectors much longer."""

_CODE_DEFAULTS = Sampling(
    temperature=0.3,
    top_p=0.7,
    top_k=20,
    repetition_penalty=1.05,
    repetition_window=16,
    min_frames=1,
)
_REFINE_DEFAULTS = Sampling(
    temperature=0.7,
    top_p=0.7,
    top_k=20,
    repetition_penalty=1.0,
    repetition_window=16,
    min_frames=1,
    max_frames=MAX_REFINED_TOKENS,
)


@dataclass(frozen=True, slots=True)
class _Speaker:
    """A registered voice: ids at `[spk_emb]`, of the reference's text, and of its frames."""

    id: int
    text: tuple[int, ...] = ()
    frames: tuple[int, ...] = ()


@dataclass(slots=True)
class _Registered:
    registrar: Registrar | None = None
    speakers: dict[str, _Speaker] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


class ChatTTSCheckpoint:
    """`engine.checkpoints.base.Checkpoint` of a ChatTTS release.

    Voices are those of `voices.json`, `random-N` where the release has speaker statistics, and any
    speaker text given as the voice of a request.
    """

    def __init__(
        self, release: Release, decode_from: Literal["codes", "hidden"], random_speakers: int
    ) -> None:
        self.decode_from = decode_from
        self._release = release
        self._tokens = release.tokens
        self._frontend = ChatTTSFrontend(release.tokens, release.homophones)
        self._voices = _catalogue(release, random_speakers)
        self._codec: Codec | None = None
        self._registered = _Registered()

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        decode_from: Literal["codes", "hidden"] | None = None,
        random_speakers: int = 0,
    ) -> ChatTTSCheckpoint:
        """Check a release and make it ready.

        Raises `CheckpointError` naming everything that is missing or wrong.
        """
        return cls(Release.open(directory), decode_from or "hidden", random_speakers)

    # -- what there is ---------------------------------------------------------------------------

    def model_dir(self) -> Path:
        return self._release.model_dir(keep_hidden=self.decode_from == "hidden")

    def codec(self) -> Codec:
        if self._codec is None:
            self._codec = self._release.codec()
        return self._codec

    def voices(self) -> Sequence[Voice]:
        return [voice.card for voice in self._voices.values()]

    def limits(self, max_streams: int) -> EngineLimits:
        return EngineLimits(
            max_text_chars=MAX_TEXT_CHARS,
            max_streams=max_streams,
            min_speed=MIN_SPEED,
            max_speed=MAX_SPEED,
        )

    def token(self, name: str) -> int:
        """Id of a control token such as `[spk_emb]`."""
        return self._tokens[name]

    # -- voices ----------------------------------------------------------------------------------

    def register(self, registrar: Registrar) -> None:
        self._registered = _Registered(registrar)
        for id, voice in self._voices.items():
            self._registered.speakers[id] = self._register(voice)

    def warm_prompts(self) -> list[list[int]]:
        """Heads that fill at least one block; a speaker vector alone fills none."""
        registered = self._registered
        block = registered.registrar.block_size if registered.registrar else 1
        heads = {tuple(self._head(speaker)) for speaker in registered.speakers.values()}
        return [list(head) for head in sorted(heads) if len(head) >= block]

    def _register(self, voice: ChatTTSVoice) -> _Speaker:
        registrar = self._registered.registrar
        if registrar is None:
            raise RuntimeError("voices are registered before the first piece is planned")
        id = self._tokens["[empty_spk]"]
        if voice.vector is not None:
            id = registrar.register_speaker(unit(voice.vector))
        if voice.reference is None:
            return _Speaker(id)
        text = self._frontend.read(voice.reference.text).ids
        frames = registrar.register_frames(voice.reference.as_codes(self._encode))
        return _Speaker(id, text, tuple(frames))

    def _encode(self, recording: Any) -> Codes:
        return self.codec().encode(recording)

    def _speaker(self, name: str) -> _Speaker:
        """A voice by name or by its speaker text. Raises `SpeechError("unknown_voice")`."""
        with self._registered.lock:
            known = self._registered.speakers
            if name not in known:
                known[name] = self._register(self._voice_of(name))
            return known[name]

    def _voice_of(self, name: str) -> ChatTTSVoice:
        seed = name.removeprefix("random-")
        if self._release.statistics is not None and seed != name and seed.isdecimal():
            return random_voice(self._release.statistics, int(seed))
        if len(name) >= _MIN_SPEAKER_TEXT:
            try:
                vector = decode_vector(name, self._release.sizes.hidden)
            except ValueError as error:
                raise SpeechError(
                    "unknown_voice", f"The voice is no speaker vector: {error}."
                ) from error
            return ChatTTSVoice(Voice(name, "Speaker vector", LANGUAGES), vector)
        known = ", ".join(self._voices)
        hint = "" if self._release.statistics else " (random speakers need asset/spk_stat.pt)"
        raise SpeechError(
            "unknown_voice",
            f"No voice {describe(name)}; there are {known}, and any speaker vector's text{hint}.",
        )

    def _head(self, speaker: _Speaker) -> list[int]:
        return [self._tokens["[Stts]"], speaker.id, *speaker.text]

    # -- one piece -------------------------------------------------------------------------------

    def refine(self, request: SpeechRequest) -> PiecePlan | None:
        """The text generation to run before `plan`, or None when the text asks for none.

        Its text ids belong into `plan(request, refined)`. Raises as `plan` does.
        """
        text = self._read(request)
        if not text.refine:
            return None
        tags = [self._tokens[tag] for tag in text.refine]
        prompt = [self._tokens["[Sbreak]"], *text.ids, self._tokens["[Pbreak]"], *tags]
        sampling = _resolve(Sampling(), _REFINE_DEFAULTS, request.seed, "text")
        return PiecePlan(prompt, sampling, request.voice, (), len(text.ids))

    def plan(self, request: SpeechRequest, refined: Sequence[int] | None = None) -> PiecePlan:
        """Raises `SpeechError`: `unknown_voice`, `empty_text`, `unpronounceable`, `text_too_long`,
        `bad_speed`."""
        if not MIN_SPEED <= request.speed <= MAX_SPEED:
            raise SpeechError("bad_speed", f"Speed must be {MIN_SPEED} to {MAX_SPEED}.")
        text = self._read(request)
        ids = text.ids if refined is None else self._spoken(refined) or text.ids
        speaker = self._speaker(request.voice)
        earlier_text, earlier_frames = self._continued(request)
        prompt = [
            *self._head(speaker),
            *earlier_text,
            self._tokens[speed_tag(request.speed)],
            *ids,
            self._tokens["[Ptts]"],
            *speaker.frames,
            *earlier_frames,
        ]
        expected = round((FRAMES_PER_TOKEN * len(ids) + 30) / request.speed)
        defaults = replace(_CODE_DEFAULTS, max_frames=min(MAX_FRAMES, 3 * expected))
        return PiecePlan(
            prompt=prompt,
            sampling=_resolve(request.sampling, defaults, request.seed, "code"),
            voice=request.voice,
            continuation=ids,
            expected_frames=expected,
        )

    def _read(self, request: SpeechRequest) -> TokenText:
        too_long = SpeechError(
            "text_too_long", f"A piece has at most {MAX_TEXT_CHARS} characters; cut it."
        )
        if len(request.text) > MAX_TEXT_CHARS:
            raise too_long
        text = self._frontend.read(request.text, request.language)
        if len(text.ids) > MAX_TEXT_TOKENS:
            raise too_long
        return text

    def _spoken(self, refined: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._tokens.spoken(refined))[:MAX_TEXT_TOKENS]

    def _continued(self, request: SpeechRequest) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Text and frames of the previous piece when it has the same voice and is short enough."""
        context = request.context
        if not isinstance(context, PromptContext) or context.voice != request.voice:
            return (), ()
        if len(context.tokens) > MAX_CONTEXT_POSITIONS:
            return (), ()
        vocabulary = self._release.sizes.text_vocab
        text = tuple(token for token in context.tokens if token < vocabulary)
        return text, tuple(token for token in context.tokens if token >= vocabulary)


def speed_tag(factor: float) -> str:
    """`[speed_0]` to `[speed_9]`: 5 is normal, each step about 15% (half speed is 0)."""
    return f"[speed_{min(9, max(0, round(5 + 5 * math.log2(factor))))}]"


def _resolve(
    asked: Sampling, defaults: Sampling, seed: int | None, mode: Literal["code", "text"]
) -> CodeSampling:
    def pick(name: str) -> Any:
        value = getattr(asked, name)
        return getattr(defaults, name) if value is None else value

    return CodeSampling(
        temperature=pick("temperature"),
        top_p=pick("top_p"),
        top_k=pick("top_k"),
        repetition_penalty=pick("repetition_penalty"),
        repetition_window=pick("repetition_window"),
        min_frames=pick("min_frames"),
        max_frames=min(MAX_FRAMES, pick("max_frames")),
        seed=secrets.randbits(31) if seed is None else seed,
        mode=mode,
    )


def _catalogue(release: Release, random_speakers: int) -> dict[str, ChatTTSVoice]:
    """Voices by id; `default` is the first named one, else a random speaker, else none."""
    named = {voice.card.id: voice for voice in release.voices}
    statistics = release.statistics
    if random_speakers and statistics is None:
        raise CheckpointError(
            f"{release.directory}: random speakers need speaker statistics, which are not there. "
            "Put spk_stat.pt of the release into asset/, or asset/spk_stat.txt with the text "
            "`spk_stat` of the reference package's configuration."
        )
    if statistics is not None:
        for seed in range(random_speakers):
            voice = random_voice(statistics, seed)
            named.setdefault(voice.card.id, voice)
    if DEFAULT_VOICE in named:
        default = named.pop(DEFAULT_VOICE)
    elif named:
        first = next(iter(named.values()))
        default = replace(first, card=replace(first.card, id=DEFAULT_VOICE))
    elif statistics is not None:
        default = random_voice(statistics, 0, DEFAULT_VOICE)
    else:
        default = ChatTTSVoice(
            Voice(DEFAULT_VOICE, "No speaker", LANGUAGES, description="A voice of chance.")
        )
    return {DEFAULT_VOICE: default, **named}
