"""Written text -> spoken text, with a map back."""

from gateway.spoken.filter import SpokenFilter, speak
from gateway.spoken.lexicon import Lexicon, LexiconError, load_lexicon
from gateway.spoken.mapped import Span, Spoken
from gateway.spoken.scanner import Opening, Segment
from gateway.spoken.settings import SpokenSettings

__all__ = [
    "Lexicon",
    "LexiconError",
    "Opening",
    "Segment",
    "Span",
    "Spoken",
    "SpokenFilter",
    "SpokenSettings",
    "load_lexicon",
    "speak",
]
