"""The client of a Cluster of several nodes, with what redis-py's own leaves to chance (OPS-330, OPS-331)."""

import asyncio
from collections import deque
from typing import Any

from redis import exceptions
from redis.asyncio import RedisCluster
from redis.asyncio.cluster import ClusterNode

_AT_ONCE = 64
"""Commands under way; a node has as many connections at most."""


class _LastFirst(deque[Any]):
    """Gives the connection that came back last."""

    def popleft(self) -> Any:
        return self.pop()


class Cluster(RedisCluster):
    """Further commands wait for their turn, where redis-py would refuse a connection. All its errors are RedisError."""

    def __init__(self, **options: Any) -> None:
        # Of a slot that has moved only its entry is changed. After some of them redis-py would look for all nodes anew,
        # and end every connection for that, also those in use.
        super().__init__(**options, max_connections=_AT_ONCE, reinitialize_steps=0)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().execute_command(*args, **kwargs)
        except exceptions.RedisClusterException as error:
            # No node can be reached, or not all slots are served. It is none of redis-py's other errors.
            raise exceptions.ConnectionError(str(error)) from error

    async def _execute_command(self, target_node: ClusterNode, *args: Any, **kwargs: Any) -> Any:
        async with self._turns:
            return await super()._execute_command(target_node, *args, **kwargs)

    def get_node(self, *args: Any, **kwargs: Any) -> ClusterNode:
        """Returns the node that a key is on its way to. Raises ConnectionError for one that is not known yet, after
        which redis-py looks for all nodes.

        It says ASKING and the command one after the other, each on a connection of its own choice, which has to be the
        same one.
        """
        node = super().get_node(*args, **kwargs)
        if node is None:
            raise exceptions.ConnectionError("a node of the Cluster is not known yet")
        if not isinstance(node._free, _LastFirst):
            node._free = _LastFirst(node._free, node._free.maxlen)
        return node
