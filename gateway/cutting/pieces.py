"""What a splitter gives: pieces of the written text, in order, without gaps."""

from __future__ import annotations

from typing import Literal, NamedTuple

Pause = Literal["none", "clause", "sentence", "paragraph"]
"""The silence that the writing asks for after a piece; `none` after a cut inside a clause."""


class Piece(NamedTuple):
    """A run of the written text that is spoken as one request.

    `start` and `end` count code points of the turn's written text: `written[start:end] == text`.
    A piece starts where the last one ended, and always holds at least one letter or digit.
    """

    text: str
    start: int
    end: int
    pause: Pause = "none"
