"""`voxgate captions`: somebody else's live captions, read aloud in real time."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from gateway.client import Audio, GatewayError, VoiceClient
from gateway.commands.console import DEFAULT_URL, CommandError, stderr
from gateway.commands.outputs import Output, add_output_options, choose_output
from gateway.commands.say import standard_input
from gateway.commands.speaking import explain
from gateway.containers import Writer
from gateway.cues import CueError, Update, read_file, read_line
from gateway.follower import FASTEST, Follower, Say
from gateway.pacing import Playhead
from gateway.protocol import AudioFlag, Error, TurnDone, TurnStarted

_LOOK_SECONDS = 0.1


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="FILE",
        help="WebVTT or SRT, played in real time; - reads lines from standard input as they come: "
        'text, or {"text": ..., "final": false} for text that may yet be corrected',
    )
    add_output_options(parser)
    parser.add_argument("--voice", default="default", help="see: voxgate voices")
    parser.add_argument("--language", choices=("auto", "en", "zh"), default="auto")
    parser.add_argument(
        "--max-lag",
        metavar="SECONDS",
        type=float,
        default=8.0,
        help="sentences that would start later than this after they were shown are left out while "
        "newer ones wait; default: 8",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the report with the lags")
    parser.add_argument("--plot", metavar="FILE.png", type=Path, help="draw the lags (matplotlib)")
    parser.add_argument("--url", default=DEFAULT_URL, help=f"the gateway; default: {DEFAULT_URL}")


@dataclass(frozen=True, slots=True)
class Heard:
    """One sentence: when it began to be heard, how long after it was shown, how fast it was."""

    at: float
    lag: float
    speed: float
    text: str


@dataclass(slots=True)
class Report:
    """What came of the captions. Times are seconds from the start."""

    most_lag: float
    heard: list[Heard] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    failed: int = 0

    def as_json(self) -> dict[str, Any]:
        lags = sorted(each.lag for each in self.heard)
        return {
            "stated_most_lag": self.most_lag,
            "sentences": len(lags),
            "skipped": self.skipped,
            "failed_pieces": self.failed,
            "lag_p50": lags[len(lags) // 2] if lags else None,
            "lag_p95": lags[len(lags) * 95 // 100] if lags else None,
            "lag_most": lags[-1] if lags else None,
            "fastest": max((each.speed for each in self.heard), default=None),
            "curve": [asdict(each) for each in self.heard],
        }


def run(arguments: Namespace) -> int:
    plot = load_plot() if arguments.plot else None
    try:
        updates = None if arguments.source == "-" else read_file(Path(arguments.source))
        report = asyncio.run(_follow(arguments, updates, choose_output(arguments)))
    except CueError as failure:
        raise CommandError(str(failure), 2) from failure
    except GatewayError as failure:
        raise CommandError(explain(failure, arguments.url)) from failure
    result = report.as_json()
    if arguments.json:
        arguments.json.write_bytes(orjson.dumps(result, option=orjson.OPT_INDENT_2))
    if plot is not None:
        draw(plot, report, arguments.plot)
    stderr().print(summary(result))
    return 1 if report.failed else 0


def summary(result: dict[str, Any]) -> str:
    if not result["sentences"]:
        return "Nothing was spoken."
    return (
        f"{result['sentences']} sentences, lag {result['lag_p50']:.1f} s (median), "
        f"{result['lag_most']:.1f} s at most, up to {result['fastest']:g} times as fast, "
        f"{len(result['skipped'])} left out"
    )


# -- captions as they come -------------------------------------------------------------------------


async def _played(updates: list[Update], began: float) -> AsyncIterator[Update]:
    """A file's captions at their times."""
    for update in updates:
        await asyncio.sleep(began + update.at - time.monotonic())
        yield update


async def _piped(began: float) -> AsyncIterator[Update]:
    """Lines of standard input as they arrive."""
    rest = ""
    async for part in standard_input():
        *lines, rest = (rest + part).split("\n")
        for line in lines:
            update = read_line(line, time.monotonic() - began)
            if update is not None:
                yield update
    last = read_line(rest, time.monotonic() - began)
    if last is not None:
        yield last


# -- following -------------------------------------------------------------------------------------


class _Following:
    """One run: captions in on one side, speech out on the other."""

    def __init__(self, client: VoiceClient, writer: Writer, most_lag: float, speed: float) -> None:
        self.report = Report(most_lag)
        self._client = client
        self._writer = writer
        self._began = time.monotonic()
        self._follower = Follower(most_lag, fastest=min(FASTEST, speed))
        self._playhead = Playhead()
        self._said: deque[Say] = deque()
        """Given to the gateway and not heard yet."""
        self._speed = 1.0
        self._speaking = 0
        self._over = False
        self._news = asyncio.Event()
        self._samples = 0

    @property
    def began(self) -> float:
        return self._began

    def _now(self) -> float:
        return time.monotonic() - self._began

    async def run(self, updates: AsyncIterator[Update]) -> None:
        """Until all captions are spoken. Raises `GatewayError` and `CueError`."""
        tasks = [
            asyncio.create_task(self._watch(updates)),
            asyncio.create_task(self._listen()),
        ]
        speaking = asyncio.create_task(self._speak())
        try:
            await asyncio.wait([*tasks, speaking], return_when=asyncio.FIRST_EXCEPTION)
            for task in (*tasks, speaking):
                if task.done():
                    task.result()
        finally:
            for task in (*tasks, speaking):
                task.cancel()
            await asyncio.gather(*tasks, speaking, return_exceptions=True)
            self._writer.close(self._samples)

    async def _watch(self, updates: AsyncIterator[Update]) -> None:
        async for update in updates:
            self._follower.show(update.text, self._now(), final=update.final)
            self._news.set()
        self._follower.finish(self._now())
        self._over = True
        self._news.set()

    async def _speak(self) -> None:
        told = 0
        while True:
            now = self._now()
            say = None
            # One sentence in the making at a time: whatever waits can still be left out.
            if not self._speaking:
                say = self._follower.next(now, self._playhead.lead(now))
            for skipped in self._follower.skipped[told:]:
                self.report.skipped.append(skipped._asdict())
                stderr().print(
                    f"left out, {skipped.lag:.1f} s late: {skipped.text}",
                    style="yellow",
                    markup=False,
                )
            told = len(self._follower.skipped)
            if say is not None:
                await self._say(say)
            elif self._over and not self._speaking and not self._follower.waiting:
                await self._client.send("session.end")
                return
            else:
                self._news.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), _LOOK_SECONDS)

    async def _say(self, say: Say) -> None:
        if say.speed != self._speed:
            await self._client.send("session.update", speed=say.speed)
            self._speed = say.speed
        self._said.append(say)
        self._speaking += 1
        await self._client.send("text.append", text=say.sentence.text)
        await self._client.send("turn.end")

    async def _listen(self) -> None:
        waiting: dict[int, Say] = {}
        while True:
            try:
                event = await self._client.receive()
            except GatewayError as ended:
                if ended.code == "session ended":
                    return
                raise
            if isinstance(event, TurnStarted):
                waiting[event.turn] = self._said.popleft()
            elif isinstance(event, Audio):
                now = self._now()
                if event.flags & AudioFlag.FIRST:
                    self._hear(waiting[event.turn], now + self._playhead.lead(now))
                self._playhead.send(event.samples, now)
                self._samples += event.samples
                await asyncio.to_thread(self._writer.write, event.payload, event.samples)
            elif isinstance(event, TurnDone):
                self._speaking -= 1
                self.report.failed += event.failed
                self._news.set()
            elif isinstance(event, Error):
                stderr().print(f"{event.code}: {event.message} {event.hint}", style="yellow")

    def _hear(self, say: Say, at: float) -> None:
        lag = at - say.sentence.at
        self.report.heard.append(Heard(round(at, 3), round(lag, 3), say.speed, say.sentence.text))


async def _follow(arguments: Namespace, updates: list[Update] | None, output: Output) -> Report:
    client = VoiceClient(
        arguments.url,
        voice=arguments.voice,
        language=arguments.language,
        format=output.wire_format,
        captions=False,
    )
    async with client:
        limits = client.started.limits
        with output.open() as file:
            writer = output.writer(file, int(client.started.audio["pre_skip"]))
            following = _Following(client, writer, arguments.max_lag, float(limits["max_speed"]))
            source = (
                _piped(following.began) if updates is None else _played(updates, following.began)
            )
            await following.run(source)
    return following.report


# -- the picture -----------------------------------------------------------------------------------


def load_plot() -> Any:
    """matplotlib, before anything is spoken. Raises `CommandError`."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as missing:
        install = f"{sys.executable} -m pip install matplotlib"
        raise CommandError(f"--plot needs matplotlib: {install}") from missing
    return pyplot


def draw(pyplot: Any, report: Report, path: Path) -> None:
    """Lag over time, with speed and what was left out."""
    figure, axes = pyplot.subplots(figsize=(8, 3.5))
    axes.plot(
        [each.at for each in report.heard],
        [each.lag for each in report.heard],
        drawstyle="steps-post",
        label="lag",
    )
    axes.axhline(report.most_lag, linestyle=":", color="grey", label="stated most")
    for skipped in report.skipped:
        axes.axvline(skipped["now"], color="tab:red", alpha=0.4)
    axes.set(xlabel="seconds", ylabel="seconds after it was shown", ylim=(0, None))
    speeds = axes.twinx()
    speeds.plot(
        [each.at for each in report.heard],
        [each.speed for each in report.heard],
        color="tab:green",
        alpha=0.6,
        drawstyle="steps-post",
    )
    speeds.set(ylabel="speed", ylim=(0.9, FASTEST + 0.1))
    axes.legend(loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
