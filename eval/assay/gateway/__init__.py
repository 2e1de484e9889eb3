"""What stands between evaluators and targets: one HTTP server on loopback, in the coordinator's own loop.

Each job has a *lane*, `http://127.0.0.1:PORT/<job>/v1`, with a key of its own; the target's key stays here.
A request goes on unchanged, once the lane and the target have a slot for it, to one endpoint of the target's
pool; what fails for the moment is asked again here and nowhere else. A final answer is kept in the job's
journal, durably, before the child sees a byte of it; the k-th asking of an equal request gets the k-th kept
answer. So a job is resumed by starting its child again: nothing that was answered is asked twice, whatever
the evaluator, and what failed is asked again.

An answer is held back until it is whole, a streamed one too. That costs a child nothing but the sight of
the first words, and gives much: whatever dies half way is asked again unseen, and no child has ever read
words that the journal does not hold. In turn a child's own timeouts must be off or long: its request also
waits for its slot here, and the target's timeout is kept here.
"""

from assay.gateway.gateway import Gateway
from assay.gateway.lane import OpenLane
from assay.gateway.pool import Pool
from assay.gateway.spent import Spent

__all__ = ["Gateway", "OpenLane", "Pool", "Spent"]
