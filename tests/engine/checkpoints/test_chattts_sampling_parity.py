"""The sampler's processed probabilities against the reference's processors."""

from __future__ import annotations

from collections.abc import Callable

import chattts_reference as reference
import numpy as np
import pytest
import torch

from engine.sampler import candidates, penalise, sorted_candidates

WINDOW = 16


@pytest.mark.parametrize("case", range(len(reference.SAMPLING_CASES)))
def test_processed_probabilities_are_those_of_the_reference(
    case: int, record_property: Callable[[str, object], None]
) -> None:
    settings = reference.SAMPLING_CASES[case]
    wanted = reference.arrays("sampling")[str(case)]
    logits, history = (torch.from_numpy(values) for values in reference.sampling_inputs(case))
    recent = history[:, -WINDOW:]
    rows = len(logits)

    scores = penalise(
        logits / settings["temperature"],
        recent,
        torch.ones_like(recent, dtype=torch.bool),
        torch.full((rows,), settings["repetition_penalty"]),
    )
    top_k = int(settings["top_k"])
    ids, logp = candidates(
        scores,
        torch.full((rows,), settings["top_p"]),
        torch.full((rows,), top_k),
        sorted_candidates(top_k),
    )

    found = np.zeros_like(wanted)
    np.put_along_axis(found, ids.numpy(), logp.softmax(1).numpy(), axis=1)
    off = np.abs(found - wanted).max()
    record_property("probabilities differ by", off)
    assert off < 1e-5
    assert ((found > 0) == (wanted > 0)).all()


def test_goldens_tell_the_settings_apart() -> None:
    """A sampler that ignored a setting could not match all cases."""
    kept = [int((reference.arrays("sampling")[str(case)] > 0).sum()) for case in (0, 2, 3, 4)]
    assert len(set(kept)) >= 3
