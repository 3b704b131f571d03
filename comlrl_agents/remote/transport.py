"""Many requests at once over one HTTP client: bounded concurrency, retries, a time-out for the whole of a request.

The client lives in an event loop of its own thread, so that it is one client for the whole run, that a request can be
cut off at any point (a server that sends a byte a second never lets a blocking read time out), and that it works inside
programs that have a running loop already.
"""

import asyncio
import json
import random
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from comlrl_agents.remote.endpoint import HIDDEN, Endpoint

RETRIED = frozenset([408, 409, 429])
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 20.0
LONGEST_BODY = 64 << 20


@dataclass(frozen=True, slots=True)
class Reply:
    """``payload``: the parsed JSON, or None with a ``failure`` in words. ``attempts``: requests that were sent."""

    payload: Any = None
    failure: str = ""
    attempts: int = 0


class _FailedError(Exception):
    """An attempt without a usable answer; ``retry``: another may have one, not before ``pause`` seconds."""

    def __init__(self, text: str, *, retry: bool = False, pause: float = 0.0) -> None:
        super().__init__(text)
        self.retry = retry
        self.pause = pause


class Transport:
    """Sends JSON bodies to one endpoint; ``close`` when it is no longer needed.

    Raises:
        ConfigError: the key or the headers cannot be sent.

    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._headers = endpoint.request_headers()
        self._secrets = endpoint.secrets()
        self._jitter = random.Random()
        self._lock = threading.Lock()
        self._line: _Line | None = None
        self._not_before = 0.0

    def post_all(self, bodies: Sequence[bytes]) -> list[Reply]:
        """One reply per body, in order. A request that fails is a reply with a failure, never an exception."""
        line = self._open_line()
        future = asyncio.run_coroutine_threadsafe(self._gather(line, bodies), line.loop)
        try:
            return future.result()
        except BaseException:  # a KeyboardInterrupt here must stop what is under way there
            future.cancel()
            raise

    def close(self) -> None:
        """Close the connections and end the thread; the next request starts another."""
        with self._lock:
            line, self._line = self._line, None
        if line is not None:
            line.hang_up()
            line.thread.join()

    def _open_line(self) -> "_Line":
        with self._lock:
            if self._line is None:
                self._line = _Line(self.endpoint.max_concurrency)
                weakref.finalize(self, self._line.hang_up)
            return self._line

    async def _gather(self, line: "_Line", bodies: Sequence[bytes]) -> list[Reply]:
        return list(await asyncio.gather(*(self._reply(line, body) for body in bodies)))

    async def _reply(self, line: "_Line", body: bytes) -> Reply:
        for attempt in range(1 + self.endpoint.max_retries):
            try:
                return Reply(await self._attempt(line, body), attempts=attempt + 1)
            except _FailedError as error:
                failure, last = self.scrubbed(str(error)), attempt == self.endpoint.max_retries
                # A server that asks for more patience than a request gets is one that does not answer.
                if not error.retry or last or error.pause > self.endpoint.timeout:
                    waits = f"; it asks to wait {error.pause:g} s" if error.pause > self.endpoint.timeout else ""
                    return Reply(failure=f"{failure}{waits}", attempts=attempt + 1)
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2**attempt) * self._jitter.uniform(0.5, 1.0)
                if error.pause:  # what the server asks of one request holds for all
                    self._not_before = max(self._not_before, time.monotonic() + error.pause)
                await asyncio.sleep(max(pause, error.pause))
        raise AssertionError("the last attempt returns")

    async def _attempt(self, line: "_Line", body: bytes) -> Any:
        async with line.slots:
            while (wait := self._not_before - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            try:
                async with asyncio.timeout(self.endpoint.timeout):
                    status, headers, content = await self._exchange(line.client, body)
            except TimeoutError:
                raise _FailedError(f"no whole answer within {self.endpoint.timeout:g} s", retry=True) from None
            except (httpx2.TransportError, OSError) as error:
                raise _FailedError(f"{type(error).__name__}: {error}", retry=True) from None
            except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
                raise _FailedError(f"{type(error).__name__}: {error}") from None
        text = self.scrubbed(content.decode("utf-8", errors="replace"))
        if not 200 <= status < 300:
            retry = status in RETRIED or status >= 500
            raise _FailedError(
                f"HTTP {status}: {text!r:.200}", retry=retry, pause=_retry_after(headers) if retry else 0.0
            )
        try:
            return self._without_secrets(json.loads(text))
        except (ValueError, RecursionError):
            raise _FailedError(f"expected JSON, actually {text!r:.120}") from None

    async def _exchange(self, client: httpx2.AsyncClient, body: bytes) -> tuple[int, httpx2.Headers, bytes]:
        content = bytearray()
        async with client.stream("POST", self.endpoint.target, content=body, headers=self._headers) as response:
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > LONGEST_BODY:
                    raise _FailedError(f"an answer of more than {LONGEST_BODY >> 20} MiB")
        return response.status_code, response.headers, bytes(content)

    def scrubbed(self, text: str) -> str:
        """``text`` without the key, which a server may repeat in what it says."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN).replace(json.dumps(secret)[1:-1], HIDDEN)
        return text

    def _without_secrets(self, payload: Any) -> Any:
        """The payload itself, or a copy without the key where a server repeats it, in whatever way it is escaped."""
        if not self._secrets:
            return payload
        text = json.dumps(payload, ensure_ascii=False)
        clean = self.scrubbed(text)
        return payload if clean == text else json.loads(clean)


class _Line:
    """The client with its event loop and the thread that runs it."""

    def __init__(self, most: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.slots = asyncio.Semaphore(most)
        limits = httpx2.Limits(max_connections=most, max_keepalive_connections=most)
        # The transport's deadline covers the whole of a request; redirects would carry the key elsewhere.
        self.client = httpx2.AsyncClient(timeout=None, limits=limits, follow_redirects=False)
        self.thread = threading.Thread(target=_serve, args=(self.loop,), name="remote-model", daemon=True)
        self.thread.start()

    def hang_up(self) -> None:
        """Ask the thread to close the client and to end; does not wait, because a finalizer may run in any thread."""
        if not self.loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._end(), self.loop)

    async def _end(self) -> None:
        await self.client.aclose()
        self.loop.stop()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


def _retry_after(headers: httpx2.Headers) -> float:
    """Seconds that the server asks to wait: the header holds seconds or a date; 0 without one that can be read."""
    value = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
