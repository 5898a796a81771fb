"""Streaming decode with kept context, all live streams in one batched pass.

Every convolution keeps the rows to the left of a stream's next window, so nothing is decoded twice
and a causal codec gives sample for sample what it gives offline. A codec that is not causal decodes
each window together with `look_ahead_frames` of what follows; those frames come again in the next
window, so each is final once that many frames after it are known. The only audio held back besides
is what the inverse STFT's next frames still add to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.api import Pcm
from engine.codec.config import CodecError
from engine.codec.model import Codec, Frames, Path
from engine.codec.network import Network
from engine.codec.rows import Rows


@dataclass(slots=True, eq=False)
class StreamState:
    """One stream's place between two pushes. Dropping it frees everything it holds."""

    context: Tensor | None = None
    waiting: Frames | None = None
    """Frames that were pushed and are not final yet."""
    stft_rows: int = 0
    """STFT frames decoded so far."""
    path: Path | None = None
    finished: bool = False


Push = tuple[StreamState, Frames, bool]
"""A stream, its new frames (n, width), whether they are its last."""


@dataclass(slots=True)
class _Window:
    """What one stream decodes in this pass."""

    slot: int
    state: StreamState
    frames: Frames
    settled: int
    last: bool


class StreamingDecoder:
    """Decodes pushes of many streams together. Belongs to one thread at a time.

    recorded: record the networks on the first pushes and run the recording from then on; the codec
    must not be moved or changed after that.
    """

    def __init__(self, codec: Codec, look_ahead_frames: int = 0, *, recorded: bool = True) -> None:
        if look_ahead_frames < 0:
            raise CodecError("bad_config", "look_ahead_frames must not be negative")
        self.codec = codec
        self.look_ahead = 0 if codec.config.causal else look_ahead_frames
        self._ola = codec.overlap_add
        self._scale = self._ola.scale(codec.device)
        self._recorded = recorded
        self._networks: dict[Path, Network] = {}

    def open(self) -> StreamState:
        """A stream at its beginning."""
        return StreamState()

    def warm(self) -> None:
        """Decode silence of every kind of batch, so that no listener waits for a recording."""
        frames = self._silence(self.look_ahead + 4)
        for _ in range(2):
            alone, one, other = self.open(), self.open(), self.open()
            self.push([(alone, frames, False)])
            self.push([(one, frames, False), (other, frames[1:], False)])
            self.push([(alone, frames, True)])
            self.push([(one, frames, True), (other, frames[2:], True)])

    def touch(self) -> None:
        """Decode a little silence for nobody: weights and code come back into the caches."""
        self.push([(self.open(), self._silence(self.look_ahead + 3), False)])

    def _silence(self, count: int) -> Frames:
        """Frames (count, width) of the codec's usual path, with nothing in particular in them."""
        path = self.codec.default_path
        kind = np.int16 if path == "codes" else np.float32
        return np.zeros((count, self.codec.width(path)), kind)

    @torch.inference_mode()
    def push(self, batch: Sequence[Push]) -> list[Pcm]:
        """Decode what is new; one PCM array (samples,) for each push, possibly empty.

        A stream may occur once in a batch; those of codes decode in one pass, those of hidden
        states in another. Raises `CodecError` (`bad_frames`, `finished_stream`) before anything is
        decoded.
        """
        paths = self._check(batch)
        pcm: list[Pcm] = [np.zeros(0, np.float32)] * len(batch)
        windows = self._windows(batch, paths)
        for path in ("codes", "hidden"):
            group = [w for w in windows if w.state.path == path]
            if group:
                for window, sound in zip(group, self._decode(group, path), strict=True):
                    pcm[window.slot] = sound
        return pcm

    def _check(self, batch: Sequence[Push]) -> list[Path]:
        """What each push is decoded from, if all can be."""
        if len({id(state) for state, _, _ in batch}) != len(batch):
            raise CodecError("bad_frames", "a stream occurs twice in one batch")
        paths = []
        codes = []
        for state, frames, _ in batch:
            if state.finished:
                raise CodecError("finished_stream", "frames were pushed after the last ones")
            path = self.codec.path_of(frames)
            if state.path not in (None, path):
                raise CodecError("bad_frames", f"a stream of {state.path} was given {path}")
            if path == "codes":
                codes.append(frames)
            paths.append(path)
        if codes:
            self.codec.check_range(np.concatenate(codes))
        return paths

    def _windows(self, batch: Sequence[Push], paths: list[Path]) -> list[_Window]:
        """Take in the new frames; the windows of those streams that can give audio now."""
        windows = []
        for slot, ((state, frames, last), path) in enumerate(zip(batch, paths, strict=True)):
            state.path = path
            state.finished = state.finished or last
            known = len(frames) if state.waiting is None else len(state.waiting) + len(frames)
            settled = known if last else max(0, known - self.look_ahead)
            joined = frames
            if state.waiting is not None:
                joined = np.concatenate([state.waiting, frames])
            # A copy: the caller's array may be a view of a ring that moves on.
            state.waiting = joined[settled:].copy() if settled < known else None
            if last or settled:
                windows.append(_Window(slot, state, joined, settled, last))
        return windows

    def _decode(self, windows: list[_Window], path: Path) -> list[Pcm]:
        codec, ola = self.codec, self._ola
        device = codec.device
        counts = np.array([len(w.frames) for w in windows])
        settled = np.array([w.settled for w in windows])
        rows = Rows(counts, settled, device)
        mels = rows.doubled()
        kept = self._gather(windows, ola.kept_width + codec.context_width(path))
        frames = np.concatenate([w.frames for w in windows])
        stft, successor = kept.new_zeros(0, codec.config.vocoder.n_fft), kept[:, ola.kept_width :]
        if len(frames):
            x = torch.from_numpy(frames).to(device)
            stft, successor = self._network(path).run(x, successor, rows, mels)
        tails = np.array([ola.tail if w.last else 0 for w in windows])
        outputs = Rows(mels.settled + tails, mels.settled, device)
        stft = _with_tails(stft, mels.settled, tails)
        sums, ola_kept = ola.add(stft, outputs, kept[:, : ola.kept_width])
        sound = self._normalise(sums, windows, outputs, mels)
        for window in windows:
            window.state.context = None
        if not all(w.last for w in windows):
            self._scatter(windows, torch.cat([ola_kept, successor], 1))
        return sound

    def _network(self, path: Path) -> Network:
        found = self._networks.get(path)
        if found is None:
            found = self._networks[path] = Network(self.codec, path, recorded=self._recorded)
        return found

    def _gather(self, windows: list[_Window], width: int) -> Tensor:
        """(windows, width) what the streams have kept."""
        fresh = torch.zeros(width, device=self.codec.device)
        return torch.stack([fresh if (c := w.state.context) is None else c for w in windows])

    def _scatter(self, windows: list[_Window], kept: Tensor) -> None:
        # Each stream owns its copy: a view would keep the whole batch alive.
        for window, row in zip(windows, kept, strict=True):
            if not window.last:
                window.state.context = row.clone()

    def _normalise(
        self, sums: Tensor, windows: list[_Window], outputs: Rows, mels: Rows
    ) -> list[Pcm]:
        """Divide by the summed squared windows, drop what a centred STFT drops, cut by stream."""
        ola = self._ola
        done = np.array([w.state.stft_rows for w in windows])
        last = np.array([w.last for w in windows])
        sound = sums * self._scale
        index = np.repeat(done - outputs.starts, outputs.counts) + np.arange(outputs.total)
        total = done + mels.settled + int(self.codec.config.vocoder.silent_tail)
        ends = np.repeat(np.where(last, total, np.iinfo(np.int64).max), outputs.counts)
        edge = np.flatnonzero((index < ola.kept) | (index >= ends))
        if len(edge):
            at = torch.from_numpy(edge).to(sums.device)
            energy = ola.energy(index[edge], ends[edge]).float().to(sums.device)
            sound.index_copy_(0, at, sums.index_select(0, at) / energy.clamp(min=1e-11))
        flat = sound.cpu().numpy().reshape(-1)
        result: list[Pcm] = []
        for window, start, count in zip(windows, outputs.starts, outputs.counts, strict=True):
            dropped = min(max(0, ola.skipped - window.state.stft_rows), int(count))
            begin, end = (start + dropped) * ola.hop, (start + count) * ola.hop
            result.append(flat[begin:end])
            window.state.stft_rows += 2 * window.settled
        return result


def _with_tails(stft: Tensor, settled: np.ndarray, tails: np.ndarray) -> Tensor:
    """Silent frames after the last frame of each finished stream."""
    if not tails.any():
        return stft
    total = int((settled + tails).sum())
    shift = np.cumsum(tails) - tails
    at = np.arange(len(stft)) + np.repeat(shift, settled)
    padded = stft.new_zeros(total, stft.shape[1])
    return padded.index_copy_(0, torch.from_numpy(at).to(stft.device), stft)
