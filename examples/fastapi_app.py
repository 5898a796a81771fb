"""A FastAPI application whose own WebSocket answers text with speech; browsers play the WebM.

uvicorn examples.fastapi_app:app --port 9000
"""

import os

from fastapi import FastAPI, WebSocket, WebSocketDisconnect

from gateway.client import Audio, VoiceClient
from gateway.protocol import Caption, TurnDone

GATEWAY = os.environ.get("VOXGATE_URL", "http://127.0.0.1:8080")
app = FastAPI()


@app.websocket("/talk")
async def talk(websocket: WebSocket, voice: str = "default") -> None:
    """Each text message is one turn: captions as JSON, audio as binary, then `{"done": ...}`."""
    await websocket.accept()
    async with VoiceClient(GATEWAY, voice=voice, format="webm_opus") as client:
        try:
            async for text in websocket.iter_text():
                async for event in client.speak(text):
                    if isinstance(event, Audio):
                        await websocket.send_bytes(event.payload)
                    elif isinstance(event, Caption) and event.final:
                        times = {"start": event.start_sample, "end": event.end_sample}
                        await websocket.send_json({"text": event.text, **times})
                    elif isinstance(event, TurnDone):
                        await websocket.send_json({"done": event.ms})
        except WebSocketDisconnect:
            pass  # Leaving cancelled what was being spoken.
