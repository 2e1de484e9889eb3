"""What the endpoints share: the key, the metrics, and the model once it is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from server.dialect import Dialect
from server.errors import loading
from server.grammar import GrammarCompiler
from server.key import Key
from server.metrics import Metrics
from server.scheduler import Scheduler
from server.template import ChatTemplate
from server.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Served:
    """A loaded model, ready to answer."""

    name: str
    created: int  # seconds since the epoch, when it was loaded
    tokenizer: Tokenizer
    template: ChatTemplate | None  # None: the model file has none, so there is no chat
    dialect: Dialect  # how its answers are written, as the template shows
    grammars: GrammarCompiler
    scheduler: Scheduler
    context: int  # positions a slot can hold
    vocabulary: int
    identity: Mapping[str, object]
    fingerprint: str


@dataclass(slots=True)
class Service:
    """The server's state; `served` is None while the weights are read. The event loop's alone."""

    key: Key | None
    metrics: Metrics = field(default_factory=Metrics)
    served: Served | None = None
    draining: bool = False  # told to stop: what is under way is finished, nothing else begun
    under_way: int = 0  # requests let in and not yet answered

    def ready(self) -> Served:
        """Return the loaded model, or raise ApiError 503."""
        if self.served is None:
            raise loading()
        return self.served
