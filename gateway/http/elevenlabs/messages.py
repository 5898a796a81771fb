"""Messages of the clients of ElevenLabs' sockets."""

from __future__ import annotations

from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from gateway.auth_guard import without_scheme
from gateway.http.elevenlabs.wishes import VoiceSettings


class GenerationConfig(BaseModel):
    """`chunk_length_schedule`: characters to wait for before each generation."""

    model_config = ConfigDict(extra="ignore")

    chunk_length_schedule: list[float] | None = Field(default=None, min_length=1, max_length=100)


class Message(BaseModel):
    """Any message of a client of either socket."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    text: str | None = None
    voice_settings: VoiceSettings | None = None
    generation_config: GenerationConfig | None = None
    generator_config: GenerationConfig | None = None
    pronunciation_dictionary_locators: list[dict[str, Any]] | None = None
    try_trigger_generation: bool | None = None
    flush: bool | None = None
    context_id: str | None = Field(default=None, max_length=128)
    contextId: str | None = Field(default=None, max_length=128)
    close_context: bool | None = None
    close_socket: bool | None = None
    xi_api_key: str | None = Field(
        default=None, validation_alias=AliasChoices("xi-api-key", "xi_api_key"), repr=False
    )
    authorization: str | None = Field(default=None, repr=False)
    single_use_token: str | None = Field(default=None, repr=False)

    @property
    def key(self) -> str | None:
        """The key or token that the first message may show."""
        found = self.xi_api_key or self.authorization or self.single_use_token
        return without_scheme(found) if found else None

    @property
    def context(self) -> str | None:
        return self.context_id if self.context_id is not None else self.contextId


HEARD = tuple(Message.model_fields)
"""What is not left out in silence."""
