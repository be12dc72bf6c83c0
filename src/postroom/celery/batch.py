"""Publishing many messages with few calls: kombu's `Producer.batch()`, and groups of Celery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from postroom.celery.sparing import spare
from postroom.errors import PartialPut, PostroomError
from postroom.model import NewMessage

if TYPE_CHECKING:
    from postroom.celery.channel import Channel


class PublishBatch:
    """Collects messages by queue; `flush` puts them. Ids make it safe to repeat a flush that failed."""

    def __init__(self, channel: Channel, max_size: int = 1_000) -> None:
        self.channel = channel
        self.max_size = max_size
        self._messages: dict[str, list[NewMessage]] = {}
        self._count = 0

    def publish(self, message: dict[str, Any], **kwargs: Any) -> None:
        self.channel.basic_publish(message, _publish_batch=self, **kwargs)
        if self._count >= self.max_size:
            self.flush()

    def add(self, queue: str, message: NewMessage) -> None:
        self._messages.setdefault(queue, []).append(message)
        self._count += 1

    def flush(self) -> None:
        """For kombu, which has an error of its own for a batch that was not put as a whole."""
        from kombu.exceptions import BatchPublishError  # since 5.7, as is who calls this

        try:
            self.put_all()
        except PostroomError as error:
            raise BatchPublishError(f"not everything was put: {error}") from error

    def put_all(self) -> None:
        """Put everything. What raises keeps what was not put: call it again, or `discard`."""
        while self._messages:
            queue, messages = next(iter(self._messages.items()))
            try:
                self.channel.office.put(queue, messages)
            except PartialPut as error:  # what is put may be done by then, and its id forgotten
                self._messages[queue] = error.refused
                self._count -= len(messages) - len(error.refused)
                raise
            del self._messages[queue]
            self._count -= len(messages)

    def discard(self) -> None:
        self._messages.clear()
        self._count = 0

    def close(self) -> None:
        self.discard()


def publish_group(signatures: Iterable[Any], *, app: Any = None, **options: Any) -> list[Any]:
    """Send many tasks with as few calls as possible: one put a queue and thousand tasks.

    Returns their AsyncResults, in order. Like `signature.apply_async(**options)` for each of them; when it
    raises QueueFull or EngineUnavailable, some queues may have got theirs.
    """
    signatures = list(signatures)
    if not signatures:
        return []
    app = app or signatures[0].app
    with app.producer_pool.acquire(block=True) as producer:
        channel = producer.channel
        batch = channel.collecting = PublishBatch(channel)
        spare(producer)
        try:
            results = [signature.apply_async(producer=producer, **options) for signature in signatures]
        finally:
            channel.collecting = None
        batch.put_all()
    return results
