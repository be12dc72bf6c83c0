"""Messages in Redis 7.0 or newer, or Valkey: one server, Sentinel or Cluster, with or without TLS.

`redis://localhost:6379/0`; all forms and options are in `urls`. A user of its own needs these permissions
(for the default prefix), and in a cluster also `+cluster|slots +asking`:

    ACL SETUSER app on >secret resetkeys ~postroom:* resetchannels -@all +@read +@write -@dangerous
        +eval +evalsha +time +wait +info +ping +select +client|setname
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from postroom.engines.redis import urls
from postroom.engines.redis.client import Client
from postroom.engines.redis.faults import is_uncertain

if TYPE_CHECKING:
    from postroom.engines.redis.engine import RedisEngine

__all__ = ["connect", "is_uncertain"]


def connect(url: SplitResult, max_body: int) -> RedisEngine:
    """The engine of a Redis URL. Raises ConfigError or EngineUnavailable when its server will not do."""
    from postroom.engines.redis.engine import RedisEngine  # here, so that the client can be had without it

    settings = urls.read(url)
    client = Client(settings)
    try:
        client.check()
        return RedisEngine(client, settings.prefix, max_body=max_body)
    except BaseException:
        client.close()
        raise
