"""What a client is told about the pieces of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.api import SAMPLE_RATE, SpeechError, describe
from gateway.captions import Span, heard_until
from gateway.characters import expected_seconds
from gateway.errors import ERRORS
from gateway.piece import Piece
from gateway.protocol import Caption, Error, Notice
from gateway.spoken import Opening
from gateway.wordtimes import told_words, word_times

_NOT_YET = 2**62


def caption(turn: int, pieces: Sequence[Piece], piece: Piece, *, early: bool = False) -> Caption:
    """Of a piece that has begun to sound; `pieces` are all of its turn. `early`: with the words
    known so far, when it still sounds."""
    assert piece.start_sample is not None
    words = _words(pieces, piece, early=early)
    return Caption(
        turn=turn,
        piece=piece.index,
        text=piece.text,
        spoken=piece.spoken,
        start=piece.start,
        end=piece.end,
        start_sample=piece.start_sample,
        end_sample=piece.end_sample,
        final=piece.end_sample is not None,
        words=words,
        estimated=None if words is None or piece.words() else True,
    )


def _words(pieces: Sequence[Piece], piece: Piece, *, early: bool) -> list[dict[str, Any]] | None:
    """None of a piece that made no sound, and of one that is still made unless some are known and
    wanted `early`."""
    if piece.start_sample is None or piece.end_sample == piece.start_sample:
        return None
    if piece.end_sample is None and not (early and piece.words()):
        return None
    end = _NOT_YET if piece.end_sample is None else piece.end_sample
    words = []
    told = piece.words()
    if told:
        found = told_words(piece.said, told, piece.start_sample, end)
    else:
        found = word_times(piece.said, piece.start_sample, end)
    for word in found:
        text = _writing(pieces, piece, word.start, word.end)
        values = {"text": text, **word._asdict()}
        if word.spoken == text:
            del values["spoken"]
        words.append(values)
    return words


def _writing(pieces: Sequence[Piece], piece: Piece, start: int, end: int) -> str:
    """The written text `start..end`, which may begin in a piece before this one."""
    text, first = piece.text, piece.index
    while pieces[first].start > start:
        first -= 1
        text = pieces[first].text + text
    at = pieces[first].start
    return text[start - at : end - at]


def failure(turn: int, piece: Piece, error: SpeechError) -> Error:
    """Of a piece that was not, or not wholly, spoken."""
    known = error.code in ERRORS
    start = piece.start
    if piece.earlier:
        before = len(piece.said.text) - len(piece.said.text.lstrip())
        last = piece.earlier[-1]
        start = piece.said.written(before + last.start, before + last.end)[1]
    code = error.code if known else "piece_failed"
    return Error(
        code=code,
        message=error.message if known else ERRORS[code].meaning,
        hint=ERRORS[code].hint,
        turn=turn,
        piece=piece.index,
        start=start,
        end=piece.end,
    )


def unclosed(turn: int, opening: Opening) -> Notice:
    """Of a turn that ended inside an element of which nothing is spoken."""
    return Notice(
        code="unclosed",
        message=f"{describe(opening.tag)} is never closed: nothing after it is spoken.",
        turn=turn,
        start=opening.start,
    )


def heard_characters(pieces: Sequence[Piece], heard: int) -> int:
    """How much of the turn's text was said by sample `heard`, up to a whole word."""
    spans: list[Span] = []
    for piece in pieces:
        if piece.start_sample is None:
            break
        seconds = expected_seconds(piece.text, piece.voicing.speed)
        guess = piece.start_sample + int(seconds * SAMPLE_RATE)
        told = piece.words()
        if told:
            guess = max(guess, told[-1].end_sample)
        end = guess if piece.end_sample is None else piece.end_sample
        words = told_words(piece.said, told, piece.start_sample, end)
        spans.append(
            Span(
                piece.said,
                piece.start,
                piece.end,
                piece.start_sample,
                end,
                piece.end_sample is not None,
                words,
            )
        )
    return heard_until(spans, heard)
