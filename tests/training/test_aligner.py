"""The aligner that is trained is the one that runs beside the codec."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from engine.align.network import AlignmentNetwork, StreamingNetwork
from engine.frontend.phonemes import Alphabet
from training.aligner import AlignerNet, Settings
from training.audio_store import Utterance
from training.frame_labels import NOT_LABELLED, frame_labels


def trained() -> AlignerNet:
    torch.manual_seed(0)
    return AlignerNet(Settings(width=16, inner=24)).eval()


def codes(frames: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 625, (frames, 2)).astype(np.int16)


def exported(net: AlignerNet) -> AlignmentNetwork:
    return AlignmentNetwork({name: t.float().numpy() for name, t in net.exported().items()})


def test_the_exported_network_scores_as_the_trained_one(tmp_path: Path) -> None:
    net = trained()
    save_file(net.exported(), tmp_path / "aligner.safetensors")
    network = AlignmentNetwork.load(tmp_path / "aligner.safetensors")
    given = codes(50)
    with torch.no_grad():
        expected = net(torch.from_numpy(given).long()[None])[0].log_softmax(-1)
    # Weights are stored with half precision.
    np.testing.assert_allclose(network(given), expected.numpy(), atol=0.05)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(0, 2**16))
def test_frames_in_lots_score_as_all_at_once(lots: list[int], seed: int) -> None:
    network = exported(trained())
    given = codes(sum(lots), seed)
    stream, at, scores = StreamingNetwork(network), 0, []
    for number, lot in enumerate(lots):
        scores.append(stream.push(given[at : at + lot], last=number == len(lots) - 1))
        at += lot
    np.testing.assert_allclose(np.concatenate(scores), network(given), atol=1e-4)


def test_no_frame_hears_more_than_its_look_ahead() -> None:
    network = exported(trained())
    one, other = codes(40), codes(40)
    other[20:] = codes(20, seed=9)
    same = 20 - network.look_ahead
    np.testing.assert_allclose(network(one)[:same], network(other)[:same], atol=1e-5)
    assert not np.allclose(network(one)[same], network(other)[same], atol=1e-5)


def test_frames_are_labelled_by_what_is_said_in_their_middle() -> None:
    alphabet = Alphabet.embedded()
    space, h, e = alphabet.encode(" hə")
    heard = Utterance("t", "heart", "en", "hə", 2, 0, 2048, edges=[500, 1100, 2000])
    assert frame_labels(heard, alphabet).tolist() == [space, h, e, e]
    untold = Utterance("t", "heart", "en", "hə", 2, 0, 2048)
    assert set(frame_labels(untold, alphabet).tolist()) == {NOT_LABELLED}
