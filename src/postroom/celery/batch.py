"""Publishing many messages with few calls: kombu's `Producer.batch()`, and groups of Celery."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from postroom.errors import PostroomError
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
        """Put everything. What raises keeps what was not put: call it again, or `discard`."""
        while self._messages:
            queue, messages = next(iter(self._messages.items()))
            try:
                self.channel.office.put(queue, messages)
            except PostroomError as error:
                raise _batch_error(error) from error
            del self._messages[queue]
            self._count -= len(messages)

    def discard(self) -> None:
        self._messages.clear()
        self._count = 0

    def close(self) -> None:
        self.discard()


def _batch_error(error: PostroomError) -> Exception:
    try:
        from kombu.exceptions import BatchPublishError
    except ImportError:  # kombu before 5.7, where only our own helper comes here
        return error
    made: Exception = BatchPublishError(f"not everything was put: {error}")
    return made


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
        batch = producer.channel.create_publish_batch(1_000)
        collecting = _Collecting(producer, batch)
        results = [signature.apply_async(producer=collecting, **options) for signature in signatures]
        batch.flush()
    return results


class _Collecting:
    """A producer whose messages go into a batch."""

    def __init__(self, producer: Any, batch: PublishBatch) -> None:
        self._producer = producer
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def publish(self, body: Any, **kwargs: Any) -> Any:
        # Declaring and serializing is the producer's; only the last step is ours.
        channel = self._producer.channel
        kwargs |= {"retry": False}
        with _diverted(channel, self._batch):
            return self._producer.publish(body, **kwargs)


class _diverted:
    """While this lasts, what the channel publishes goes into the batch."""

    def __init__(self, channel: Any, batch: PublishBatch) -> None:
        self._channel = channel
        self._batch = batch

    def __enter__(self) -> None:
        channel, batch = self._channel, self._batch

        def publish(message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any) -> None:
            del self._channel.basic_publish
            try:
                batch.publish(message, exchange=exchange, routing_key=routing_key)
            finally:
                channel.basic_publish = publish

        channel.basic_publish = publish

    def __exit__(self, *exc: object) -> None:
        vars(self._channel).pop("basic_publish", None)
