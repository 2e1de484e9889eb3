"""`python -m server MODEL`: serve a model over HTTP until SIGTERM.

The port is bound first, so a taken port is known at once and `/health` can say 503 while the weights are
read. SIGTERM (or Ctrl-C) lets what is under way finish within a bound, answers whatever comes meanwhile with
503, and exits 0; a second signal ends it at once.
While the model is still being read nothing is under way, and the first signal ends it at once.
`--plan` instead prints what a CUDA device needs for the model, and how fast a card could be (`planning.py`).
Exit codes: 0 ended on request or planned, 2 bad configuration or key file, 3 model, engine, memory or port
not to be had, 6 cancelled before there was anything to end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import uvicorn
import uvloop

from server import planning
from server.app import create_app
from server.errors import BAD_CONFIGURATION, CANCELLED, MISSING_DEPENDENCY, StartError
from server.guesser import NGRAM, Speculation, find_draft
from server.key import read_key
from server.loading import KEPT_SLOTS, ModelOptions, load, most_kept
from server.origin import check_model, model_name
from server.plan import Holding
from server.protocol import configuration
from server.scheduler import Limits
from server.service import Service

logger = logging.getLogger("server")

CARD = "rtx-3090"  # of cards.toml
DRAIN_SECONDS = 120
DRAIN_LOOK_SECONDS = 0.02
# How long the event loop may keep the interpreter to itself while the engine thread waits for it:
# Python's own 5 ms are longer than a token takes.
SWITCH_SECONDS = 0.0005


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like any other."""

    def error(self, message: str) -> NoReturn:
        """Raise StartError instead of printing the usage and leaving."""
        raise StartError("the command cannot be read", message, "assay serve --help")


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    out = Parser(prog="python -m server", description="Serve a model over HTTP.")
    out.add_argument("model", type=Path, help="a GGUF file, or a directory of safetensors files")
    out.add_argument("--host", default="127.0.0.1", help="address to bind (default: %(default)s)")
    out.add_argument("--port", type=_port, default=8080, help="0: any free port (default: %(default)s)")
    out.add_argument("--key-file", type=Path, help="absolute path of a private file with the API key")
    out.add_argument("--threads", type=_positive, help="engine threads (default: the engine's choice)")
    out.add_argument("--slots", type=_positive, default=8, help="answers at once (default: %(default)s)")
    out.add_argument(
        "--context", type=_positive, help="positions a slot holds (default: the engine's choice)"
    )
    out.add_argument(
        "--kv", choices=("f16", "int8", "q4"), default="f16", help="keys and values (default: %(default)s)"
    )
    out.add_argument(
        "--head",
        choices=("stored", "q8_0"),
        default="stored",
        help="output head: q8_0 of one stored as floats (default: %(default)s)",
    )
    out.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="what computes (default: %(default)s)"
    )
    out.add_argument(
        "--isa", choices=("avx512", "avx2", "plain"), help="instructions (default: the best this CPU has)"
    )
    out.add_argument(
        "--kept-slots",
        type=_whole,
        help="ended answers kept for prompts that begin alike; 0: no prefix cache "
        f"(default: {KEPT_SLOTS}, or as many of them as a GPU has room for)",
    )
    out.add_argument(
        "--kept-tokens",
        type=_whole,
        default=16384,
        help="positions they keep together (default: %(default)s)",
    )
    out.add_argument(
        "--speculate",
        metavar="GUESSER",
        help=f"guess tokens, judge several in one step: {NGRAM}, or a small model (default: do not)",
    )
    out.add_argument(
        "--draft-tokens",
        type=_positive,
        help="tokens guessed for an answer and step, at most 16 (default: 4)",
    )
    out.add_argument("--name", help="the model's name in the API (default: the file's or directory's)")
    out.add_argument("--ready-file", type=Path, help="written with port and pid once the model answers")
    out.add_argument(
        "--vram",
        type=_size,
        help="device memory that may be taken, such as 24GiB (default: what is free)",
    )
    out.add_argument(
        "--plan",
        action="store_true",
        help="print what a CUDA device needs for the model, load nothing, and exit",
    )
    out.add_argument("--card", help=f"with --plan: whose figures (default: {CARD})")
    out.add_argument("--json", action="store_true", help="with --plan: print one JSON object")
    return out


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1")
    return int(text)


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0")
    return int(text)


def _size(text: str) -> int:
    try:
        size = planning.size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if size == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no memory at all")
    return size


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port from 0 to 65535")
    return int(text)


def bind(host: str, port: int) -> socket.socket:
    """Return a listening socket; StartError with exit code 3 when the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        out = socket.socket(family, kind, protocol)
        out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by every connection: else Nagle's algorithm holds a short write back for 40 ms.
        out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        out.bind(address)
        out.listen(2048)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        raise StartError(
            f"cannot listen on {host}:{port}",
            "another process has the port" if taken else str(error.strerror or error),
            f"ss -ltnp 'sport = :{port}'   # or --port 0 for a free one" if taken else "use --host 127.0.0.1",
            MISSING_DEPENDENCY,
        ) from error
    return out


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Http(uvicorn.Server):
    """uvicorn without its own signal handling, which ends the process by the signal instead of exit 0."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._draining: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def drain(self) -> None:
        """Finish what is under way and stop; asked again, stop now.

        While the model is being read nothing is under way, and what reads it is native code that nothing
        interrupts: the process ends as it stands.
        """
        if self._service.served is None:
            os._exit(0)
        if self._service.draining:
            self.force_exit = self.should_exit = True
            return
        self._service.draining = True
        self._draining = asyncio.create_task(self._exit_when_idle())

    async def _exit_when_idle(self) -> None:
        # The listener stays open meanwhile: a client that comes gets a 503 and not a closed door.
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SECONDS
        while self._service.under_way and loop.time() < deadline:
            await asyncio.sleep(DRAIN_LOOK_SECONDS)
        self.should_exit = True


async def serve(options: argparse.Namespace, service: Service, listener: socket.socket) -> None:
    """Serve on `listener` while the model loads and after, until a signal; StartError if it cannot load."""
    sys.setswitchinterval(SWITCH_SECONDS)
    http = _Http(configuration(create_app(service)), service)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, http.drain)
    serving = asyncio.create_task(http.serve(sockets=[listener]))
    wanted = ModelOptions(
        options.model,
        served_name(options),
        threads=options.threads,
        slots=options.slots,
        context=options.context,
        device=options.device,
        isa=options.isa,
        kv=options.kv,
        head=options.head,
        kept_slots=options.kept_slots,
        kept_tokens=options.kept_tokens,
        memory_bytes=options.vram or 0,
        speculation=speculation(options),
    )
    loaded = None
    try:
        loaded = await asyncio.to_thread(load, wanted, service.metrics)
        service.served = loaded.served
        if not service.draining:
            _announce(options, listener.getsockname(), service.served.fingerprint)
        await serving
    finally:
        http.should_exit = True
        await serving
        if loaded is not None:
            loaded.close()


def speculation(options: argparse.Namespace) -> Speculation | None:
    """Return what is asked for; StartError when that cannot be."""
    if options.speculate is None:
        if options.draft_tokens is not None:
            raise StartError(
                "--draft-tokens says how much is guessed, and nothing was to be guessed",
                "--speculate is not given",
                f"add --speculate {NGRAM}",
            )
        return None
    return Speculation(options.speculate, *([options.draft_tokens] if options.draft_tokens else []))


def served_name(options: argparse.Namespace) -> str:
    """Return the model's name in the API; StartError when no client could be told it."""
    name = str(options.name or model_name(options.model))
    if not name.isprintable():
        raise StartError(
            f"a model cannot be served as {name!a}",
            "that name holds what cannot be printed",
            "add --name NAME",
        )
    return name


def _announce(options: argparse.Namespace, address: tuple[object, ...], fingerprint: str) -> None:
    host, port = address[:2]
    shown = f"[{host}]" if ":" in str(host) else host
    name = served_name(options)
    sys.stderr.write(f"ready: {name} at http://{shown}:{port}/v1 ({fingerprint})\n")
    sys.stderr.flush()
    if options.ready_file is not None:
        try:
            _write_atomic(options.ready_file, json.dumps({"port": port, "pid": os.getpid()}) + "\n")
        except OSError as error:
            raise StartError(
                f"the ready file {options.ready_file} cannot be written",
                error.strerror or type(error).__name__,
                f"ls -ld '{options.ready_file.parent}'",
            ) from error


def _check_ready_file(path: Path) -> None:
    what = f"the ready file {path} cannot be written"
    if not path.parent.is_dir():
        raise StartError(what, "its directory does not exist", f"mkdir -p '{path.parent}'")
    if path.is_dir():
        raise StartError(what, "it is a directory", f"--ready-file '{path / 'ready.json'}'")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StartError(what, "nothing may be written into its directory", f"ls -ld '{path.parent}'")


def _write_atomic(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def print_plan(options: argparse.Namespace) -> None:
    """Print what `--plan` asks for; StartError when the model cannot be planned."""
    check_model(options.model)
    holding = Holding(
        slots=options.slots,
        context=options.context,
        kv=options.kv,
        head=options.head,
        kept_slots=most_kept(options.slots, options.kept_slots),
        kept_tokens=options.kept_tokens,
    )
    report = planning.make(
        options.model,
        holding,
        options.card or CARD,
        options.vram or 0,
        Limits().prefill_alone,
        draft=find_draft(speculation(options)),
        fewer_kept=options.kept_slots is None,
    )
    try:
        sys.stdout.write((planning.document if options.json else planning.text)(report) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # Who reads has seen enough; the interpreter flushes once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        why = error.strerror or type(error).__name__
        raise StartError("the plan cannot be printed", why, "df -h   # and where stdout goes") from error


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    words = sys.argv[1:] if argv is None else argv
    try:
        options = parser().parse_args(words)
        if options.plan:
            print_plan(options)
            return 0
        key = read_key(options.key_file) if options.key_file is not None else None
        if key is None and not is_loopback(options.host):
            raise StartError(
                f"refusing to listen on {options.host} without a key",
                "anybody who reaches that address could use the model",
                "add --key-file FILE, or use --host 127.0.0.1",
                BAD_CONFIGURATION,
            )
        if options.card is not None:
            raise StartError(
                "--card says whose figures a plan is made of, and nothing was to be planned",
                "--plan is not given",
                "add --plan",
            )
        if options.vram is not None and options.device == "cpu":
            raise StartError(
                "--vram bounds the memory of a CUDA device, and the CPU was to compute",
                "--device is cpu",
                "add --device cuda, or --plan",
            )
        asked = speculation(options)
        check_model(options.model)
        if asked is not None and asked.guesser != NGRAM:
            check_model(Path(asked.guesser))
        served_name(options)
        if options.ready_file is not None:
            _check_ready_file(options.ready_file)
        listener = bind(options.host, options.port)
        # A token costs this loop a third less than asyncio's own.
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(options, Service(key), listener))
    except StartError as error:
        return _fail(error, words)
    except KeyboardInterrupt:
        why = "it was interrupted before the model was served"
        return _fail(StartError("cancelled", why, "the same command again", CANCELLED), words)
    return 0


def _fail(error: StartError, words: Sequence[str]) -> int:
    sys.stderr.write(f"{error}\n")
    if "--json" in words:
        parts = {"what": error.what, "why": error.why, "next": error.next_command}
        sys.stdout.write(json.dumps({"status": "error", "error": parts, "exit_code": error.exit_code}) + "\n")
    return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
