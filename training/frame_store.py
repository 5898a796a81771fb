"""Codec codes of the generated speech: `python -m training.frame_store AUDIO CHECKPOINT`.

Encodes every shard of AUDIO with the codec encoder of CHECKPOINT into `NAME.codes.npy` beside it:
(frames, codebooks) int16, the utterances end to end. The decoder is then trained on exactly the
codes the language model will learn, not on codes of cut-out segments.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor
from tqdm import tqdm

from engine.codec.model import Codec
from training.audio_store import SAMPLE_RATE, read_shard
from training.onset import LEAD

SAMPLES_PER_FRAME = 512


def load_codec(checkpoint: Path, device: torch.device) -> Codec:
    """The codec of a training checkpoint folder, with its encoder."""
    config = json.loads((checkpoint / "config.json").read_text("utf-8"))
    codec = Codec.from_mini(
        config,
        load_file(checkpoint / "codec_decoder_fp16.safetensors"),
        load_file(checkpoint / "codec_encoder_fp16.safetensors"),
    )
    return codec.to(device)


def encode_shards(folder: Path, codec: Codec, worker: int = 0, workers: int = 1) -> None:
    """Encode what is not encoded yet of every `workers`-th shard."""
    shards = sorted(folder.glob("*.jsonl"))[worker::workers]
    for lines in tqdm(shards, desc="encoding", unit="shard", disable=worker > 0):
        utterances = list(read_shard(lines))
        target = lines.with_suffix(".codes.npy")
        frames = sum(-(-u.samples // SAMPLES_PER_FRAME) for u in utterances)
        if target.exists() and len(np.load(target, mmap_mode="r")) == frames:
            continue
        audio = np.fromfile(lines.with_suffix(".pcm"), dtype="<i2")
        codes = [
            codec.encode(
                audio[u.start : u.start + u.samples].astype(np.float32) * np.float32(2**-15)
            )
            for u in utterances
        ]
        np.save(target, np.concatenate(codes))


class FrameSegments:
    """Random segments of whole frames: codes and the audio they stand for, held on one device.

    Voices are drawn in proportion to the square root of their hours: a voice of few hours is heard
    more often than its share, but not learned by heart.
    """

    def __init__(self, folder: Path, device: torch.device, seed: int) -> None:
        audio, codes = [], []
        starts, frame_starts, frame_counts, voices = [], [], [], []
        samples_at = frames_at = 0
        for lines in sorted(folder.glob("*.jsonl")):
            pcm = np.fromfile(lines.with_suffix(".pcm"), dtype="<i2")
            encoded = np.load(lines.with_suffix(".codes.npy"))
            at = 0
            for utterance in read_shard(lines):
                frames = -(-utterance.samples // SAMPLES_PER_FRAME)
                if at + frames > len(encoded):
                    break
                encoded[at] = LEAD
                starts.append(samples_at + utterance.start)
                frame_starts.append(frames_at + at)
                frame_counts.append(frames)
                voices.append(utterance.voice)
                at += frames
            audio.append(pcm)
            codes.append(encoded)
            samples_at += len(pcm)
            frames_at += len(encoded)
        if not starts:
            raise FileNotFoundError(
                f"{folder} holds no encoded speech. Run `python -m training.generate`, then "
                "`python -m training.frame_store`."
            )
        audio.append(np.zeros(20 * SAMPLE_RATE, np.int16))
        self._audio = torch.from_numpy(np.concatenate(audio)).to(device)
        self._codes = torch.from_numpy(np.concatenate(codes)).to(device)
        self._starts = torch.tensor(starts, device=device)
        self._frame_starts = torch.tensor(frame_starts, device=device)
        self._frame_counts = torch.tensor(frame_counts, device=device)
        self.hours: dict[str, float] = {}
        for voice, frames in zip(voices, frame_counts, strict=True):
            spoken = frames * SAMPLES_PER_FRAME / SAMPLE_RATE / 3600
            self.hours[voice] = self.hours.get(voice, 0.0) + spoken
        self._weights = torch.tensor(
            [n / self.hours[v] ** 0.5 for v, n in zip(voices, frame_counts, strict=True)],
            device=device,
        )
        self._random = torch.Generator(device=device).manual_seed(seed)

    def draw(self, batch: int, frames: int, *, from_start: bool = False) -> tuple[Tensor, Tensor]:
        """Codes (batch, frames, codebooks) int64 and audio (batch, frames * 512) in [-1, 1].

        With `from_start` the first frames of utterances, else any.
        """
        device = self._audio.device
        long_enough = self._weights * (self._frame_counts >= frames)
        chosen = torch.multinomial(long_enough, batch, replacement=True, generator=self._random)
        room = self._frame_counts[chosen] - frames + 1
        share = torch.rand(batch, device=device, generator=self._random)
        offset = (share * room).long() * (not from_start)
        at = self._frame_starts[chosen] + offset
        codes = self._codes[at[:, None] + torch.arange(frames, device=device)].long()
        first = self._starts[chosen] + offset * SAMPLES_PER_FRAME
        span = torch.arange(frames * SAMPLES_PER_FRAME, device=device)
        return codes, self._audio[first[:, None] + span].float() / 32768


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("audio", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    with context.Pool(args.workers) as pool:
        jobs = [
            (worker, args.workers, args.audio, args.checkpoint) for worker in range(args.workers)
        ]
        pool.starmap(_work, jobs, chunksize=1)


def _work(worker: int, workers: int, audio: Path, checkpoint: Path) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encode_shards(audio, load_codec(checkpoint, device), worker, workers)


if __name__ == "__main__":
    main()
