"""ElevenLabs' WebSockets: `.../stream-input` and `.../multi-stream-input`.

Every context is a session of its own behind the door, its text one turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import Any, cast

import orjson
from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.client import Flush
from gateway.door import Door
from gateway.http.elevenlabs.context import Context, Emit
from gateway.http.elevenlabs.messages import HEARD, Message
from gateway.http.elevenlabs.schedule import Schedule
from gateway.http.elevenlabs.wishes import (
    VoiceSettings,
    check_query,
    detail_of,
    flag,
    left_out,
    sound_of,
    wish_of,
)
from gateway.http.speech import Part, Wish, speak
from gateway.link import GatewayError
from gateway.transport import EXTENSION

MOST_CONTEXTS = 5
_INACTIVITY, _LONGEST_INACTIVITY = 20, 180
_POLICY = 1008
_REASON_BYTES = 123
_ERRORS = {
    "unknown_voice": "voice_id_does_not_exist",
    "capacity": "system_busy",
    "unauthorized": "invalid_api_key",
}


class Sockets:
    """The routes."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def stream_input(self, websocket: WebSocket) -> None:
        """`WS /v1/text-to-speech/{voice_id}/stream-input`."""
        await self._serve(websocket, _Single)

    async def multi_stream_input(self, websocket: WebSocket) -> None:
        """`WS /v1/text-to-speech/{voice_id}/multi-stream-input`."""
        await self._serve(websocket, _Multi)

    async def _serve(self, websocket: WebSocket, kind: type[_Socket]) -> None:
        if not self._door.allowed(websocket):
            await websocket.close()
            return
        await websocket.accept()
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            try:
                socket = kind(self._door, websocket)
                await socket.enter()
                await socket.run()
            except GatewayError as failure:
                await websocket.send_text(orjson.dumps(_error(failure)).decode())
                # Libraries that were about to send see the reason alone.
                reason = failure.message.encode()[:_REASON_BYTES].decode(errors="ignore")
                await websocket.close(_POLICY, reason)
                return
            await websocket.close(1000)


class _Socket:
    """What both sockets have in common."""

    def __init__(self, door: Door, websocket: WebSocket) -> None:
        """Raises `GatewayError` for what the address asks and cannot be had."""
        query = websocket.query_params
        self._door = door
        self._websocket = websocket
        self._query = query
        self._voice = str(websocket.path_params["voice_id"])
        self._sound = sound_of(query)
        self._inactivity = _number(query, "inactivity_timeout", _INACTIVITY, _LONGEST_INACTIVITY)
        self._seed = _number(query, "seed", None, 2**32 - 1)
        self._auto = flag(query, "auto_mode")
        flag(query, "sync_alignment")
        self._ignored = check_query(query, bool(door.settings.record_dir))
        self._sending = asyncio.Lock()
        self._first: Message | None = None

    async def enter(self) -> None:
        """Wait for the first message if only that can show a key. Raises `GatewayError` without
        one, and for a voice or wishes that cannot be had."""
        try:
            self._door.show(self._websocket, None)
        except GatewayError as refusal:
            try:
                async with asyncio.timeout(self._door.settings.start_timeout_seconds):
                    self._first = await self._receive()
            except TimeoutError:
                raise refusal from None
            self._door.show(self._websocket, self._first.key)
        self._wish(None)

    def _wish(self, settings: VoiceSettings | None, dictionaries: object = None) -> Wish:
        query = self._query
        if self._voice not in ("default", *(voice.id for voice in self._door.voices)):
            message = f"A voice with voice_id {self._voice} does not exist."
            raise GatewayError("unknown_voice", message, field="voice_id")
        return wish_of(
            self._voice,
            query.get("model_id"),
            query.get("language_code"),
            settings,
            self._seed,
            offered=self._door.limits.styles,
            dictionaries=dictionaries,
            normalization=_normalization(query),
        )

    def _open(self, first: Message, emit: Emit) -> Context:
        config = first.generation_config or first.generator_config
        lengths = config.chunk_length_schedule if config is not None else None
        schedule = Schedule(None if self._auto else lengths, auto=self._auto)
        wish = self._wish(first.voice_settings, first.pronunciation_dictionary_locators)
        who = self._door.who(self._websocket)

        def speech(text: AsyncGenerator[str | Flush, None]) -> AsyncGenerator[Part, None]:
            return speak(self._door, who, text, wish, self._sound, captions=True)

        ignored = [*self._ignored, *left_out(first, first.voice_settings, HEARD)]
        return Context(speech, schedule, emit, ignored)

    async def _receive(self) -> Message:
        """Raises `GatewayError` for what is no message, `WebSocketDisconnect` at the end."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        received = await self._websocket.receive()
        if received["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(received["code"])
        raw = received.get("text")
        try:
            return Message.model_validate_json(raw if raw is not None else received["bytes"])
        except ValidationError as invalid:
            error = invalid.errors(include_url=False, include_input=False)[0]
            field = ".".join(str(part) for part in error["loc"]) or None
            raise GatewayError("bad_field", f"{field}: {error['msg']}.", field=field) from None

    async def _send(self, message: dict[str, Any]) -> None:
        try:
            async with asyncio.timeout(self._door.settings.stall_limit_seconds), self._sending:
                await self._websocket.send_text(orjson.dumps(message).decode())
        except TimeoutError:
            self._websocket.scope["extensions"][EXTENSION](_POLICY, "slow_reader")
            raise WebSocketDisconnect(_POLICY) from None

    async def run(self) -> None:
        raise NotImplementedError


class _Single(_Socket):
    async def run(self) -> None:
        context: Context | None = None
        reading = asyncio.create_task(self._receive_soon())
        ended = False
        try:
            while True:
                waiting: set[asyncio.Task[Any]] = {reading}
                if context is not None:
                    waiting.add(context.task)
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if context is not None and context.task.done():
                    context.task.result()
                    break
                message = reading.result()
                reading = asyncio.create_task(
                    self._receive() if message.text == "" else self._receive_soon()
                )
                if ended:
                    continue
                if context is None:
                    context = self._open(message, self._send)
                ended = message.text == ""
                if ended:
                    context.end()
                else:
                    context.write(
                        message.text or "",
                        flush=bool(message.flush),
                        trigger=bool(message.try_trigger_generation),
                    )
        finally:
            reading.cancel()
            tasks = [reading]
            if context is not None:
                context.task.cancel()
                tasks.append(cast("asyncio.Task[Message]", context.task))
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._send(_FINAL)

    async def _receive_soon(self) -> Message:
        try:
            async with asyncio.timeout(self._inactivity):
                return await self._receive()
        except TimeoutError:
            raise _too_late(self._inactivity) from None


class _Multi(_Socket):
    def __init__(self, door: Door, websocket: WebSocket) -> None:
        super().__init__(door, websocket)
        self._contexts: dict[str | None, Context] = {}
        self._heard: dict[str | None, asyncio.TimerHandle] = {}

    async def run(self) -> None:
        try:
            while not (message := await self._receive()).close_socket:
                try:
                    await self._take(message)
                except GatewayError as failure:
                    await self._send(_about(message.context, _error(failure)))
            for context in self._contexts.values():
                context.end()
            while self._contexts:
                await asyncio.wait({context.task for context in self._contexts.values()})
                await asyncio.sleep(0)
        finally:
            tasks = [context.task for context in self._contexts.values()]
            for task in tasks:
                task.cancel()
            for timer in self._heard.values():
                timer.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take(self, message: Message) -> None:
        name = message.context
        context = self._contexts.get(name)
        if message.close_context:
            if context is not None:
                context.close()
            return
        if context is None:
            if message.text is None or (message.flush and not message.text.strip()):
                shown = "the default context" if name is None else f"context {name}"
                raise GatewayError("context_not_found", f"There is no {shown}; send text first.")
            if len(self._contexts) >= MOST_CONTEXTS:
                raise GatewayError(
                    "too_many_contexts", f"A connection has at most {MOST_CONTEXTS} contexts."
                )
            context = self._open(message, lambda values: self._send(_about(name, values)))
            self._contexts[name] = context
            opened = context
            context.task.add_done_callback(lambda task: self._over(name, opened, task))
        self._stay(name, context)
        context.write(
            message.text or "",
            flush=bool(message.flush),
            trigger=bool(message.try_trigger_generation),
        )

    def _stay(self, name: str | None, context: Context) -> None:
        """The context was heard of; without that it is closed after a while."""
        timer = self._heard.pop(name, None)
        if timer is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._heard[name] = loop.call_later(self._inactivity, context.close)

    def _over(self, name: str | None, context: Context, task: asyncio.Task[None]) -> None:
        if self._contexts.get(name) is context:
            del self._contexts[name]
            self._heard.pop(name).cancel()
        fault = None if task.cancelled() else task.exception()
        if isinstance(fault, GatewayError):
            self._last = asyncio.create_task(self._say(_about(name, _error(fault))))
        else:
            self._last = asyncio.create_task(self._say(_about(name, _FINAL)))

    async def _say(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await self._send(message)


_FINAL: dict[str, Any] = {
    "audio": None,
    "isFinal": True,
    "normalizedAlignment": None,
    "alignment": None,
}


def _about(context: str | None, values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "contextId": context}


def _error(failure: GatewayError) -> dict[str, Any]:
    code = _ERRORS.get(failure.code) or str(detail_of(failure)["code"])
    return {"message": failure.message, "error": code, "code": _POLICY}


def _too_late(seconds: float) -> GatewayError:
    return GatewayError(
        "input_timeout_exceeded",
        f"Have not received a new text input within the timeout of {seconds:.1f} seconds. "
        "Streaming input terminated. Send an empty text at the end, and a space to keep the "
        "connection open.",
    )


def _normalization(query: Mapping[str, str]) -> str | None:
    value = query.get("apply_text_normalization")
    if value not in (None, "auto", "on", "off"):
        raise GatewayError(
            "bad_field", "It is auto, on or off.", field="query.apply_text_normalization"
        )
    return value


def _number(query: Mapping[str, str], name: str, default: Any, most: int) -> Any:
    value = query.get(name)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 11 and int(value) <= most):
        raise GatewayError("bad_field", f"{name} is a number from 0 to {most}.", field=name)
    return int(value)
