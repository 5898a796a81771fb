"""What a session said and its listener heard, as captions: a log of its messages, and WebVTT."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from engine.api import SAMPLE_RATE
from gateway.pauses import milliseconds
from gateway.protocol import Caption, ServerMessage, TurnCancelled, TurnDone

_MOST_CUES = 2_000
_CUES_AT_ONCE = 10
_LEAST_SAMPLES = SAMPLE_RATE // 100
"""Cues without any length are not shown by players."""


class _Cue(NamedTuple):
    base: int
    caption: Caption


class Transcript:
    """The last pieces of a session. Its clock is that of all its audio in one file: the turns one
    after the other, each without pre-skip and padding.
    """

    def __init__(self) -> None:
        self._cues: deque[_Cue] = deque(maxlen=_MOST_CUES)
        self._base = 0

    @property
    def used(self) -> bool:
        """Whether anything was said."""
        return bool(self._cues)

    def note(self, message: ServerMessage) -> None:
        """A message goes to the client."""
        if isinstance(message, Caption):
            last = self._cues[-1] if self._cues else None
            if last and (last.caption.turn, last.caption.piece) == (message.turn, message.piece):
                self._cues.pop()
            self._cues.append(_Cue(self._base, message))
        elif isinstance(message, TurnDone):
            self._base += message.samples
        elif isinstance(message, TurnCancelled):
            self._cut(message)
            if not message.completed:
                self._base += message.sent_samples

    def _cut(self, cancelled: TurnCancelled) -> None:
        """Keep of a turn only what was heard."""
        heard = len(cancelled.spoken)
        kept: list[_Cue] = []
        for cue in self._cues:
            caption = cue.caption
            if caption.turn != cancelled.turn or caption.end <= heard:
                kept.append(cue)
            elif caption.start < heard:
                kept.append(cue._replace(caption=_shortened(caption, heard, cancelled)))
        self._cues = deque(kept, maxlen=_MOST_CUES)

    def webvtt(
        self, turn: int | None = None, text: Literal["written", "spoken"] = "written"
    ) -> str:
        """WebVTT of the whole session, or of one turn on its own clock."""
        return "".join(self.parts(turn, text))

    def parts(
        self, turn: int | None = None, text: Literal["written", "spoken"] = "written"
    ) -> Iterator[str]:
        """The document as it is now, in parts that take a millisecond or two each: whole, it would
        keep the event loop for half a second."""
        return _document(tuple(self._cues), turn, text)


def _document(
    cues: Sequence[_Cue], turn: int | None, text: Literal["written", "spoken"]
) -> Iterator[str]:
    part = ["WEBVTT\n"]
    for count, (base, caption) in enumerate(cues, 1):
        if turn in (None, caption.turn):
            part.append(_cue(caption, base if turn is None else 0, text))
        if count % _CUES_AT_ONCE == 0:
            yield "".join(part)
            part.clear()
    yield "".join(part)


def _cue(caption: Caption, at: int, text: Literal["written", "spoken"]) -> str:
    """The cue after a blank line; nothing where there is nothing to show."""
    body = _written(caption, at) if text == "written" else _escaped(caption.spoken)
    if caption.end_sample is None or not body:
        return ""
    end = max(caption.end_sample, caption.start_sample + _LEAST_SAMPLES)
    times = f"{_time(at + caption.start_sample)} --> {_time(at + end)}"
    return f"\n{caption.turn}-{caption.piece}\n{times}\n{body}\n"


def _shortened(caption: Caption, heard: int, cancelled: TurnCancelled) -> Caption:
    words = [word for word in caption.words or [] if word["end"] <= heard]
    spoken = " ".join(word.get("spoken", word["text"]) for word in words)
    return Caption(
        turn=caption.turn,
        piece=caption.piece,
        text=caption.text[: heard - caption.start],
        spoken=spoken if caption.words is not None else caption.spoken,
        start=caption.start,
        end=heard,
        start_sample=caption.start_sample,
        end_sample=max(caption.start_sample, cancelled.heard_samples),
        final=True,
        words=words,
        estimated=caption.estimated,
    )


def _written(caption: Caption, base: int) -> str:
    """The written text, with a time before each word but the first."""
    parts: list[str] = []
    at = 0
    for word in caption.words or ():
        start = word["start"] - caption.start
        if at < start < len(caption.text) and word["start_sample"] > caption.start_sample:
            parts += [_escaped(caption.text[at:start]), f"<{_time(base + word['start_sample'])}>"]
            at = start
    parts.append(_escaped(caption.text[at:]))
    return "".join(_lines(parts)).strip()


def _lines(parts: list[str]) -> Iterator[str]:
    """A blank line would end the cue."""
    for part in parts:
        yield part.replace("\r", "\n").replace("\n", " ")


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _time(samples: int) -> str:
    seconds, thousandths = divmod(milliseconds(samples), 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}.{thousandths:03}"
