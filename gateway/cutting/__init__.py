"""Cutting written text into the pieces that are spoken one by one."""

from gateway.cutting.pieces import Pause, Piece
from gateway.cutting.policy import Lengths
from gateway.cutting.splitter import Splitter

__all__ = ["Lengths", "Pause", "Piece", "Splitter"]
