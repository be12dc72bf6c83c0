"""A quorum queue without a leader: it is there, tells that it is empty, and neither takes nor gives anything.

RabbitMQ 3.10 leaves one behind when it is killed in the first seconds after a queue was declared: it has
written down the queue, and not yet that there is a Raft server for it. Nothing but deleting it helps.
"""

from __future__ import annotations

from amqp.exceptions import InternalError

HELP = (
    "a quorum queue has no leader at present. If that goes on, RabbitMQ was killed right after the queue was "
    "declared: find it by `rabbitmq-queues quorum_status QUEUE`, delete it by `rabbitmqctl delete_queue "
    "QUEUE`, and restart the workers of the service, which declare it again"
)


def reason(error: BaseException) -> str:
    """What an error of RabbitMQ means, if it may be that a queue has no leader; else ""."""
    if isinstance(error, InternalError):
        return f"RabbitMQ failed by itself: {HELP} ({str(error).strip() or 'no more is told'})"
    if isinstance(error, TimeoutError):
        return f"RabbitMQ gave no answer in time: it hangs, or {HELP}"
    return ""
