"""Checkpoint families: which one a directory holds, and how it is loaded."""

from __future__ import annotations

from engine.checkpoints.base import Checkpoint, CheckpointError
from engine.settings import EngineSettings

__all__ = ["Checkpoint", "CheckpointError", "load_checkpoint"]


def load_checkpoint(settings: EngineSettings) -> Checkpoint:
    """Load what `settings.checkpoint` names. Raises `CheckpointError`."""
    path = settings.checkpoint
    if path is None:
        from engine.checkpoints.mini import MiniCheckpoint

        return MiniCheckpoint.embedded()
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a directory. Give the folder of a checkpoint.")
    if (path / "asset").is_dir():
        from engine.checkpoints.chattts import ChatTTSCheckpoint

        return ChatTTSCheckpoint.load(
            path, decode_from=settings.decode_from, random_speakers=settings.seed_voices
        )
    if (path / "voices.json").is_file():
        from engine.checkpoints.mini import MiniCheckpoint

        return MiniCheckpoint.load(path)
    raise CheckpointError(
        f"{path} holds neither a ChatTTS release (an asset/ folder) nor a packed voice "
        "(voices.json)."
    )
