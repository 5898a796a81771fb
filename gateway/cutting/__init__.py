"""Cutting written text into the pieces that are spoken one by one."""

from gateway.cutting.pieces import Pause, Piece
from gateway.cutting.policy import Lengths
from gateway.cutting.resting import CLAUSE_SILENCE_S, WORD_SILENCE_S
from gateway.cutting.splitter import Splitter
from gateway.cutting.turn import TurnPiece, TurnText

__all__ = [
    "CLAUSE_SILENCE_S",
    "WORD_SILENCE_S",
    "Lengths",
    "Pause",
    "Piece",
    "Splitter",
    "TurnPiece",
    "TurnText",
]
