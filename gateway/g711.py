"""G.711, the 8-bit code of telephony: mu-law and A-law of 16-bit samples (ITU-T G.711)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.int16]

_MU_BIAS, _MU_CLIP = 33, 8_158
"""Of the 14 bits that mu-law codes."""


def mu_law(samples: Samples) -> bytes:
    """One byte a sample; all bits inverted, as on the wire."""
    value = samples.astype(np.int32) >> 2
    sign = np.where(value < 0, 0x80, 0)
    magnitude = np.minimum(np.abs(value), _MU_CLIP) + _MU_BIAS
    exponent = _exponent(magnitude >> 5)
    mantissa = (magnitude >> (exponent + 1)) & 0x0F
    code: npt.NDArray[np.uint8] = (~(sign | (exponent << 4) | mantissa) & 0xFF).astype(np.uint8)
    return code.tobytes()


def a_law(samples: Samples) -> bytes:
    """One byte a sample; even bits inverted, as on the wire."""
    value = samples.astype(np.int32) >> 3
    sign = np.where(value < 0, 0, 0x80)
    magnitude = np.where(value < 0, ~value, value)
    exponent = _exponent(magnitude >> 4)
    mantissa = (magnitude >> np.maximum(exponent, 1)) & 0x0F
    code: npt.NDArray[np.uint8] = ((sign | (exponent << 4) | mantissa) ^ 0x55).astype(np.uint8)
    return code.tobytes()


def _exponent(magnitude: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Position of the highest bit that is set; 0 of 0."""
    exponent = np.zeros_like(magnitude)
    for bit in range(1, 8):
        exponent = np.where(magnitude >= 1 << bit, bit, exponent)
    return exponent
