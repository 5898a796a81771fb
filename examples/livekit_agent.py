"""A LiveKit agent whose voice is this gateway.

    pip install livekit-agents livekit-plugins-openai livekit-plugins-silero
    python examples/livekit_agent.py dev      with LIVEKIT_URL, LIVEKIT_API_KEY, LIVEKIT_API_SECRET

The language model is any OpenAI-compatible endpoint (OPENAI_BASE_URL, CHAT_MODEL).
"""

import os

from livekit.agents import Agent, AgentSession, JobContext, WorkerOptions, cli
from livekit.plugins import openai

GATEWAY = os.environ.get("VOXGATE_URL", "http://127.0.0.1:8080")
INSTRUCTIONS = "You are heard, not read: answer in a few short spoken sentences, without markup."


def voice(name: str = "alloy") -> openai.TTS:
    return openai.TTS(
        base_url=f"{GATEWAY}/v1",
        api_key=os.environ.get("VOXGATE_API_KEY", "none"),
        model="tts-1",
        voice=name,
        response_format="pcm",
    )


def make_session() -> AgentSession:
    model = os.environ.get("CHAT_MODEL", "gpt-4o-mini")
    return AgentSession(llm=openai.LLM(model=model), tts=voice())


async def entrypoint(context: JobContext) -> None:
    await context.connect()
    session = make_session()
    await session.start(Agent(instructions=INSTRUCTIONS), room=context.room)
    await session.say("Hello! How can I help?")


if __name__ == "__main__":
    cli.run_app(WorkerOptions(entrypoint_fnc=entrypoint))
