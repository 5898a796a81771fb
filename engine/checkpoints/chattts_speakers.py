"""Which voices a ChatTTS release offers, and what each is once it is registered with the engine.

A request may name a voice of `voices.json`, `random-N` where the release has speaker statistics, or
give the text of a speaker vector itself. `default` is the first of `voices.json`, else a random
speaker, else no speaker at all, which lets every piece choose one.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.api import Pcm, SpeechError, Voice, describe
from engine.checkpoints.base import CheckpointError, Codes, Registrar
from engine.checkpoints.chattts_release import Release
from engine.checkpoints.chattts_voices import DEFAULT_VOICE, LANGUAGES, ChatTTSVoice, random_voice
from engine.checkpoints.speaker_vectors import decode_vector, unit

_MIN_SPEAKER_TEXT = 64
"""Voice names are shorter, texts of speaker vectors much longer."""
_RANDOM = "random-"
_MAX_SEED_DIGITS = 9
_IDLE_SECONDS = 600.0
"""A voice that was not asked for so long has no piece in the engine any more."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """A registered voice: token ids of the speaker, of its reference's text and of its frames."""

    id: int
    text: tuple[int, ...] = ()
    frames: tuple[int, ...] = ()


_Prompt = tuple[npt.NDArray[np.float32] | None, tuple[int, ...], Codes | None]
"""What is registered of a voice: its vector, its reference's text and its frames."""


class Speakers:
    """The voices of one release. Raises `CheckpointError` when random ones cannot be had."""

    def __init__(
        self,
        release: Release,
        random_speakers: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hidden = release.sizes.hidden
        self._statistics = release.statistics
        self._release = release
        self._random = random_speakers
        self._voices: Mapping[str, ChatTTSVoice] = self._catalogue(release.voices)
        self._known: Mapping[str, Speaker] = {}
        """By key: also those that are listed no more, since sessions may speak with them."""
        self._keys: Mapping[str, str] = {}
        """Of those that are listed, by their ids."""
        self._guests: OrderedDict[str, tuple[Speaker, float]] = OrderedDict()
        """Voices that are not listed, and when they were last asked for, the latest last."""
        self._registrar: Registrar | None = None
        self._revision = 0
        self._clock = clock

    def cards(self) -> Sequence[Voice]:
        default = _default(self._voices)
        cards = {
            id: replace(voice.card, key=self._keys.get(id, ""))
            for id, voice in self._voices.items()
        }
        named = [card for id, card in cards.items() if id != DEFAULT_VOICE]
        return [replace(cards[default], id=DEFAULT_VOICE), *named]

    def register(
        self,
        registrar: Registrar,
        *,
        open_speaker: int,
        read: Callable[[str], tuple[int, ...]],
        encode: Callable[[Pcm], Codes],
    ) -> None:
        """Register every listed voice. `open_speaker` is the token of a voice without a vector;
        `read` gives the token ids of a reference's text, `encode` the codes of its recording."""
        self._registrar = registrar
        self._open_speaker, self._read, self._encode = open_speaker, read, encode
        self._put(self._voices, self._prompts(self._voices))

    def prepare(self, listed: Sequence[ChatTTSVoice]) -> Callable[[], None]:
        """Other voices than before: the slow part of it. What is returned puts them in force; it
        raises `SpeechError` when there is no more room."""
        voices = self._catalogue(listed)
        fresh = {
            id: voice
            for id, voice in voices.items()
            if id not in self._voices or not voice.sounds_as(self._voices[id])
        }
        prompts = self._prompts(fresh)
        return lambda: self._put(voices, prompts)

    def _catalogue(self, listed: Sequence[ChatTTSVoice]) -> dict[str, ChatTTSVoice]:
        return _catalogue(self._release, listed, self._random)

    def _prompts(self, voices: Mapping[str, ChatTTSVoice]) -> dict[str, _Prompt]:
        found = {}
        for id, voice in voices.items():
            reference = voice.reference
            found[id] = (
                None if voice.vector is None else unit(voice.vector),
                () if reference is None else self._read(reference.text),
                None if reference is None else reference.as_codes(self._encode),
            )
        return found

    def _put(self, voices: Mapping[str, ChatTTSVoice], prompts: Mapping[str, _Prompt]) -> None:
        assert self._registrar is not None
        known, keys = dict(self._known), {}
        for id in voices:
            if id in prompts:
                vector, text, codes = prompts[id]
                token = self._open_speaker
                if vector is not None:
                    token = self._registrar.register_speaker(vector)
                frames = () if codes is None else self._registrar.register_frames(codes)
                self._revision += 1
                keys[id] = f"{id}#{self._revision}"
                known[keys[id]] = Speaker(token, text, tuple(frames))
            else:
                keys[id] = self._keys[id]
        # Pieces are planned in other threads too: each of these is replaced as a whole.
        self._known = known
        self._voices, self._keys = voices, keys

    def registered(self) -> Collection[Speaker]:
        """The voices that are listed."""
        known = self._known
        return [known[key] for key in self._keys.values()]

    def get(self, name: str) -> Speaker:
        """A voice by id, key or its speaker text, registered now if it is new.

        When there is no more room it takes the place of the one not asked for longest. Raises
        `SpeechError`: `unknown_voice`, or `engine_full` when that was asked for just now.
        """
        if name in self._known:
            return self._known[name]
        keys = self._keys
        if name == DEFAULT_VOICE or name in keys:
            return self._known[keys[name if name in keys else _default(keys)]]
        guest = self._guests.pop(name, None)
        speaker = self._let_in(self._unlisted(name)) if guest is None else guest[0]
        self._guests[name] = speaker, self._clock()
        return speaker

    def _let_in(self, voice: ChatTTSVoice) -> Speaker:
        if self._registrar is None:
            raise RuntimeError("voices are registered before the first piece is planned")
        assert voice.vector is not None, "only listed voices have none"
        vector = unit(voice.vector)
        try:
            return Speaker(self._registrar.register_speaker(vector))
        except SpeechError:
            if not self._guests:
                raise
            name, (longest, asked_at) = next(iter(self._guests.items()))
            if self._clock() - asked_at < _IDLE_SECONDS:
                raise
            del self._guests[name]
            return Speaker(self._registrar.replace_speaker(longest.id, vector))

    def _unlisted(self, name: str) -> ChatTTSVoice:
        seed = name.removeprefix(_RANDOM)
        numbered = seed != name and seed.isdecimal() and len(seed) <= _MAX_SEED_DIGITS
        if self._statistics is not None and numbered:
            return random_voice(self._statistics, int(seed))
        if len(name) >= _MIN_SPEAKER_TEXT:
            try:
                vector = decode_vector(name, self._hidden)
            except ValueError as error:
                message = f"The voice is no speaker vector: {error}."
                raise SpeechError("unknown_voice", message) from error
            return ChatTTSVoice(Voice(name, "Speaker vector", LANGUAGES), vector)
        known = [card.id for card in self.cards()]
        if self._statistics is not None:
            known.append(f"any {_RANDOM}N")
        raise SpeechError(
            "unknown_voice",
            f"No voice {describe(name)}; there are {', '.join(known)}, and any speaker vector's "
            "text. Random speakers need asset/spk_stat.pt of the release.",
        )


def _default(listed: Iterable[str]) -> str:
    """The voice of this name, else the first."""
    ids = list(listed)
    return DEFAULT_VOICE if DEFAULT_VOICE in ids else ids[0]


def _catalogue(
    release: Release, listed: Sequence[ChatTTSVoice], random_speakers: int
) -> dict[str, ChatTTSVoice]:
    """Listed voices by id, and random ones; at least one."""
    voices = {voice.card.id: voice for voice in listed}
    statistics = release.statistics
    if statistics is not None:
        drawn = [random_voice(statistics, seed) for seed in range(random_speakers)]
        if not voices and not drawn:
            drawn = [random_voice(statistics, 0, DEFAULT_VOICE)]
        voices |= {voice.card.id: voice for voice in drawn if voice.card.id not in voices}
    elif random_speakers:
        raise CheckpointError(
            f"{release.directory}: random speakers need speaker statistics, which are not there. "
            "Put spk_stat.pt of the release into asset/, or asset/spk_stat.txt with the text "
            "`spk_stat` of the reference package's configuration."
        )
    if not voices:
        card = Voice(DEFAULT_VOICE, "No speaker", LANGUAGES, description="A voice of chance.")
        voices = {DEFAULT_VOICE: ChatTTSVoice(card)}
    return voices
