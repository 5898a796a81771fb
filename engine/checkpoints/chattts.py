"""The official ChatTTS release, served as it is.

Layout of a prompt (ids): `[Stts] speaker reference-text [speed_N] text [Ptts] reference-codes`,
where speaker is a registered vector or `[empty_spk]`. Reference codes stand after the text, so
pieces of a voice share only the head of their prompts. The previous piece of a turn continues the
reference. A request with a style, or a text with `[oral_N]`, `[laugh_N]` or `[break_N]`, is refined
first: `[Sbreak] text
[Pbreak] tags` makes the model write the text it then speaks.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from engine.api import EngineLimits, Sampling, SpeechError, SpeechRequest, Voice
from engine.checkpoints.base import (
    CheckpointError,
    CodeSampling,
    PiecePlan,
    PromptContext,
    Registrar,
)
from engine.checkpoints.chattts_release import Release
from engine.checkpoints.chattts_speakers import Speaker, Speakers
from engine.checkpoints.chattts_voices import VOICES, read_voices
from engine.frontend.chattts import ChatTTSFrontend, TokenText
from engine.frontend.chattts_tokens import REFINE_TAGS

if TYPE_CHECKING:
    from engine.codec.model import Codec

MAX_TEXT_CHARS = 400
MAX_TEXT_TOKENS = 400
MIN_SPEED, MAX_SPEED = 0.5, 2.0
MAX_CONTEXT_POSITIONS = 800
MAX_FRAMES = 2048
MAX_REFINED_TOKENS = 384
FRAMES_PER_TOKEN = 12
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


class ChatTTSCheckpoint:
    """`engine.checkpoints.base.Checkpoint` of a ChatTTS release.

    Its voices are described at `engine.checkpoints.chattts_speakers`.
    """

    def __init__(
        self, release: Release, decode_from: Literal["codes", "hidden"], random_speakers: int
    ) -> None:
        self.decode_from = decode_from
        self._release = release
        self._tokens = release.tokens
        self._frontend = ChatTTSFrontend(release.tokens, release.homophones)
        self._speakers = Speakers(release, random_speakers)
        self._block_size = 1
        self._codec: Codec | None = None

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
        return self._speakers.cards()

    def limits(self, max_streams: int) -> EngineLimits:
        return EngineLimits(
            max_text_chars=MAX_TEXT_CHARS,
            max_streams=max_streams,
            min_speed=MIN_SPEED,
            max_speed=MAX_SPEED,
            styles=tuple(tag.strip("[]") for tag in REFINE_TAGS if self._tokens.has(tag)),
        )

    def token(self, name: str) -> int:
        """Id of a control token such as `[spk_emb]`."""
        return self._tokens[name]

    def token_ids(self, text: str) -> tuple[int, ...]:
        """Ids of a text as it is spoken; raises `SpeechError` as `plan` does."""
        return self._frontend.read(text).ids

    # -- voices ----------------------------------------------------------------------------------

    def register(self, registrar: Registrar) -> None:
        self._block_size = registrar.block_size
        self._speakers.register(
            registrar,
            open_speaker=self._tokens["[empty_spk]"],
            read=self.token_ids,
            encode=lambda recording: self.codec().encode(recording),
        )

    def voice_files(self) -> Sequence[Path]:
        return (self._release.directory / VOICES,)

    def read_voices(self) -> Callable[[], None]:
        """See `engine.checkpoints.base.GrowingCheckpoint`."""
        voices, problems = read_voices(self._release.directory, self._release.sizes)
        if problems:
            raise CheckpointError("; ".join(problems))
        return self._speakers.prepare(voices)

    def warm_prompts(self) -> list[list[int]]:
        """Heads that fill at least one block; a speaker vector alone fills none."""
        heads = {tuple(self._head(speaker)) for speaker in self._speakers.registered()}
        return [list(head) for head in sorted(heads) if len(head) >= self._block_size]

    def _head(self, speaker: Speaker) -> list[int]:
        return [self._tokens["[Stts]"], speaker.id, *speaker.text]

    # -- one piece -------------------------------------------------------------------------------

    def refine(self, request: SpeechRequest) -> PiecePlan | None:
        """The text generation to run before `plan`, or None when the text asks for none.

        Its text ids belong into `plan(request, refined)`. Raises as `plan` does.
        """
        text = self._read(request)
        self._speakers.get(request.voice)
        # What the text says comes last, and the last one of a kind counts.
        asked = [*(f"[{name}]" for name in request.style), *text.refine]
        last = {tag.split("_")[0]: tag for tag in asked if tag in REFINE_TAGS}
        if not last:
            return None
        tags = [self._tokens[tag] for tag in last.values() if self._tokens.has(tag)]
        prompt = [self._tokens["[Sbreak]"], *text.ids, self._tokens["[Pbreak]"], *tags]
        sampling = _resolve(Sampling(), _REFINE_DEFAULTS, request.seed, "text")
        return PiecePlan(prompt, sampling, request.voice, (), len(text.ids))

    def plan(self, request: SpeechRequest, refined: Sequence[int] | None = None) -> PiecePlan:
        """Raises `SpeechError`: `unknown_voice`, `empty_text`, `unpronounceable`, `text_too_long`,
        `bad_speed`; `engine_full` for a new voice when no more can be registered."""
        text = self._read(request)
        ids = text.ids if refined is None else self._spoken(refined) or text.ids
        speaker = self._speakers.get(request.voice)
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
        if not MIN_SPEED <= request.speed <= MAX_SPEED:
            raise SpeechError("bad_speed", f"Speed must be {MIN_SPEED} to {MAX_SPEED}.")
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
