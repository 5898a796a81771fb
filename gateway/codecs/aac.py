"""AAC-LC in ADTS frames through libvo-aacenc (Apache-2.0)."""

from __future__ import annotations

import ctypes

from gateway.codecs.base import library

_FRAME_BYTES = 2 * 1024
_OUT_BYTES = 8_192
_CODING_AAC = 8
_ENCODER_PARAMETERS = 0x42211040
_MORE_INPUT = 0x80000005
_DELAY_FRAMES = 2
"""The encoder looks ahead: so much silence brings out the last samples."""


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("buffer", ctypes.c_void_p),
        ("length", ctypes.c_ulong),
        ("time", ctypes.c_longlong),
    )


class _OutputInfo(ctypes.Structure):
    _fields_ = (
        ("sample_rate", ctypes.c_long),
        ("channels", ctypes.c_long),
        ("sample_bits", ctypes.c_long),
        ("input_used", ctypes.c_ulong),
        ("reserved", ctypes.c_ulong),
    )


class _Parameters(ctypes.Structure):
    _fields_ = (
        ("sample_rate", ctypes.c_int),
        ("bitrate", ctypes.c_int),
        ("channels", ctypes.c_short),
        ("adts", ctypes.c_short),
    )


_MEMORY = ("Alloc", "Free", "Set", "Copy", "Check", "Compare", "Move")


class _MemoryOperator(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_void_p) for name in _MEMORY)


class _UserData(ctypes.Structure):
    _fields_ = (
        ("flag", ctypes.c_int),
        ("memory", ctypes.c_void_p),
        ("reserved1", ctypes.c_ulong),
        ("reserved2", ctypes.c_ulong),
    )


_INIT = ctypes.CFUNCTYPE(
    ctypes.c_ulong, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.POINTER(_UserData)
)
_SET_INPUT = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p, ctypes.POINTER(_Buffer))
_GET_OUTPUT = ctypes.CFUNCTYPE(
    ctypes.c_ulong, ctypes.c_void_p, ctypes.POINTER(_Buffer), ctypes.POINTER(_OutputInfo)
)
_PARAMETER = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p)
_UNINIT = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p)


class _Api(ctypes.Structure):
    _fields_ = (
        ("init", _INIT),
        ("set_input", _SET_INPUT),
        ("get_output", _GET_OUTPUT),
        ("set_parameter", _PARAMETER),
        ("get_parameter", _PARAMETER),
        ("uninit", _UNINIT),
    )


class AacEncoder:
    """Raises `CodecMissingError`, and `ValueError` for a bit rate that cannot be."""

    def __init__(self, rate: int, bitrate: int) -> None:
        self._state: ctypes.c_void_p | None = None
        aac = library("vo-aacenc")
        self._api = _Api()
        aac.voGetAACEncAPI(ctypes.byref(self._api))
        self._memory = _MemoryOperator(
            *(ctypes.cast(getattr(aac, f"cmnMem{name}"), ctypes.c_void_p) for name in _MEMORY)
        )
        user = _UserData(0, ctypes.addressof(self._memory), 0, 0)
        state = ctypes.c_void_p()
        if self._api.init(ctypes.byref(state), _CODING_AAC, ctypes.byref(user)):
            raise ValueError("the AAC encoder refused to begin")
        self._state = state
        parameters = _Parameters(rate, bitrate, 1, 1)
        if self._api.set_parameter(state, _ENCODER_PARAMETERS, ctypes.addressof(parameters)):
            self.close()
            raise ValueError(f"AAC has no {bitrate} bit/s at {rate} Hz")
        self._held = bytearray()

    def feed(self, samples: bytes) -> bytes:
        self._held += samples
        out = bytearray()
        while len(self._held) >= _FRAME_BYTES:
            frame = bytes(self._held[:_FRAME_BYTES])
            del self._held[:_FRAME_BYTES]
            out += self._frame(frame)
        return bytes(out)

    def _frame(self, frame: bytes) -> bytes:
        kept = ctypes.create_string_buffer(frame, _FRAME_BYTES)
        given = _Buffer(ctypes.addressof(kept), _FRAME_BYTES, 0)
        self._api.set_input(self._state, ctypes.byref(given))
        room = ctypes.create_string_buffer(_OUT_BYTES)
        made, info = _Buffer(ctypes.addressof(room), _OUT_BYTES, 0), _OutputInfo()
        failed = self._api.get_output(self._state, ctypes.byref(made), ctypes.byref(info))
        if failed & 0xFFFFFFFF == _MORE_INPUT:
            return b""
        if failed:
            raise ValueError(f"the AAC encoder failed ({failed & 0xFFFFFFFF:#x})")
        return room.raw[: made.length]

    def finish(self) -> bytes:
        padding = -len(self._held) % _FRAME_BYTES + _DELAY_FRAMES * _FRAME_BYTES
        out = self.feed(bytes(padding))
        self.close()
        return out

    def close(self) -> None:
        state, self._state = self._state, None
        if state is not None:
            self._api.uninit(state)

    def __del__(self) -> None:
        self.close()
