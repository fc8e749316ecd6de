"""Maximum flow by Boykov and Kolmogorov's search trees, on whole capacities.

Nodes that the source reaches with capacity left form one tree, those that reach the sink another. Where trees meet,
flow is pushed along the path, and nodes that an exhausted edge cuts off look for a new parent. Notation and order of
steps are those of their paper, "An experimental comparison of min-cut/max-flow algorithms", section 3.
"""

from typing import NamedTuple

import numpy as np

from distdual.kernels.jit import inner_bare_kernel, inner_kernel, kernel
from distdual.kernels.rows import Bools, Int32s, Ints

NOBODY, TERMINAL, ORPHAN = -1, -2, -3  # in place of the arc to a node's parent
FAR = 1 << 60


class Network(NamedTuple):
    """A network and the flow through it; arcs 2 e and 2 e + 1 are edge e and its reverse."""

    arcs: Int32s  # (2 m,) the arcs out of each node, node after node
    begin: Int32s  # (n + 1,) where those of each node begin
    head: Int32s  # (2 m,)
    left: Ints  # (2 m,) the capacity that is left of each arc
    terminal: Ints  # (n,) what is left from the source, or, below 0, to the sink
    parent: Int32s  # (n,) the arc to the parent in the tree
    sink: Bools  # (n,) which tree
    dist: Ints  # (n,) the distance to the terminal at the time `seen`
    seen: Ints  # (n,)


class Queue(NamedTuple):
    """Nodes in a ring, each once at most."""

    nodes: Int32s  # (n + 1,)
    ends: Ints  # (2,) of the first and after the last
    inside: Bools  # (n,)


@kernel
def maximum_flow(edges: Ints, capacity: Ints, terminal: Ints, reached: Bools) -> int:
    """The value of a largest flow; capacity (m,) holds in both directions. Fills `reached`: the source's side of a cut.

    Changes `terminal`, capacities from the source, or, below 0, to the sink.
    """
    flow = new_flow(edges, capacity, terminal)
    n = len(terminal)
    active, orphans = new_queue(n), new_queue(n)
    for i in range(n):
        if terminal[i] != 0:
            flow.parent[i], flow.sink[i], flow.dist[i] = TERMINAL, terminal[i] < 0, 1
            enqueue(active, i)
    total, time, i = 0, 0, -1
    while True:
        if i < 0 or flow.parent[i] == NOBODY:
            i = take_connected(flow, active)
            if i < 0:
                break
        middle = grow(flow, active, i)
        time += 1
        if middle < 0:
            i = -1
            continue
        total += augment(flow, orphans, middle)
        while orphans.ends[0] != orphans.ends[1]:
            adopt(flow, active, orphans, dequeue(orphans), time)
    for k in range(n):
        reached[k] = flow.parent[k] != NOBODY and not flow.sink[k]
    return int(total)


@inner_kernel
def new_flow(edges: Ints, capacity: Ints, terminal: Ints) -> Network:
    n, m = len(terminal), len(edges)
    begin, left = np.zeros(n + 1, np.int32), np.empty(2 * m, np.int64)
    arcs, head = np.empty(2 * m, np.int32), np.empty(2 * m, np.int32)
    for e in range(m):
        begin[edges[e, 0] + 1] += 1
        begin[edges[e, 1] + 1] += 1
    for k in range(n):
        begin[k + 1] += begin[k]
    place = begin[:-1].copy()
    for e in range(m):
        a, b = edges[e, 0], edges[e, 1]
        head[2 * e], head[2 * e + 1] = b, a
        left[2 * e], left[2 * e + 1] = capacity[e], capacity[e]
        arcs[place[a]], arcs[place[b]] = 2 * e, 2 * e + 1
        place[a] += 1
        place[b] += 1
    parent, sink = np.full(n, NOBODY, np.int32), np.zeros(n, np.bool_)
    return Network(arcs, begin, head, left, terminal, parent, sink, np.zeros(n, np.int64), np.zeros(n, np.int64))


@inner_kernel
def new_queue(n: int) -> Queue:
    return Queue(np.empty(n + 1, np.int32), np.zeros(2, np.int64), np.zeros(n, np.bool_))


@inner_bare_kernel
def enqueue(queue: Queue, node: int) -> None:
    if not queue.inside[node]:
        queue.inside[node] = True
        queue.nodes[queue.ends[1]] = node
        queue.ends[1] = (queue.ends[1] + 1) % len(queue.nodes)


@inner_bare_kernel
def dequeue(queue: Queue) -> int:
    node = queue.nodes[queue.ends[0]]
    queue.ends[0] = (queue.ends[0] + 1) % len(queue.nodes)
    queue.inside[node] = False
    return int(node)


@inner_bare_kernel
def take_connected(flow: Network, active: Queue) -> int:
    """The next active node that is still in a tree, −1 if there is none."""
    while active.ends[0] != active.ends[1]:
        node = dequeue(active)
        if flow.parent[node] != NOBODY:
            return int(node)
    return -1


@inner_bare_kernel
def grow(flow: Network, active: Queue, i: int) -> int:
    """Take the free neighbours of node i into its tree; returns an arc from the source's tree to the sink's, or −1."""
    into_sink = flow.sink[i]
    for p in range(flow.begin[i], flow.begin[i + 1]):
        a = flow.arcs[p]
        along = a ^ 1 if into_sink else a  # the direction of flow
        if flow.left[along] == 0:
            continue
        j = flow.head[a]
        if flow.parent[j] == NOBODY:
            flow.sink[j], flow.parent[j] = into_sink, a ^ 1
            flow.seen[j], flow.dist[j] = flow.seen[i], flow.dist[i] + 1
            enqueue(active, j)
        elif flow.sink[j] != into_sink:
            return int(along)
        elif flow.seen[j] <= flow.seen[i] and flow.dist[j] > flow.dist[i]:  # a parent that is nearer to the terminal
            flow.parent[j] = a ^ 1
            flow.seen[j], flow.dist[j] = flow.seen[i], flow.dist[i] + 1
    return -1


@inner_bare_kernel
def augment(flow: Network, orphans: Queue, middle: int) -> int:
    """Push what fits through the path from the source over `middle` to the sink; returns how much."""
    most = flow.left[middle]
    for into_sink in (False, True):
        i = flow.head[middle] if into_sink else flow.head[middle ^ 1]
        while flow.parent[i] != TERMINAL:
            a = flow.parent[i]
            most = min(most, flow.left[a if into_sink else a ^ 1])
            i = flow.head[a]
        most = min(most, abs(flow.terminal[i]))
    flow.left[middle] -= most
    flow.left[middle ^ 1] += most
    for into_sink in (False, True):
        i = flow.head[middle] if into_sink else flow.head[middle ^ 1]
        while flow.parent[i] != TERMINAL:
            a = flow.parent[i]
            along = a if into_sink else a ^ 1
            above = flow.head[a]
            flow.left[along] -= most
            flow.left[along ^ 1] += most
            if flow.left[along] == 0:
                flow.parent[i] = ORPHAN
                enqueue(orphans, i)
            i = above
        flow.terminal[i] += most if into_sink else -most
        if flow.terminal[i] == 0:
            flow.parent[i] = ORPHAN
            enqueue(orphans, i)
    return int(most)


@inner_bare_kernel
def adopt(flow: Network, active: Queue, orphans: Queue, i: int, time: int) -> None:
    """Find the orphan i a parent that is connected with the terminal; without one, it leaves the tree."""
    into_sink, best, nearest = flow.sink[i], -1, FAR
    for p in range(flow.begin[i], flow.begin[i + 1]):
        a = flow.arcs[p]
        j = flow.head[a]
        if flow.left[a if into_sink else a ^ 1] > 0 and flow.sink[j] == into_sink and flow.parent[j] != NOBODY:
            distance = distance_of(flow, j, time)
            if distance < nearest:
                best, nearest = a, distance
    if best >= 0:
        flow.parent[i], flow.seen[i], flow.dist[i] = best, time, nearest + 1
        return
    flow.parent[i] = NOBODY
    for p in range(flow.begin[i], flow.begin[i + 1]):
        a = flow.arcs[p]
        j = flow.head[a]
        if flow.sink[j] != into_sink or flow.parent[j] == NOBODY:
            continue
        if flow.left[a if into_sink else a ^ 1] > 0:
            enqueue(active, j)
        if flow.parent[j] >= 0 and flow.head[flow.parent[j]] == i:
            flow.parent[j] = ORPHAN
            enqueue(orphans, j)


@inner_bare_kernel
def distance_of(flow: Network, i: int, time: int) -> int:
    """The distance of node i to its terminal, FAR if an orphan is on the way; notes it for all nodes on the way."""
    distance, k = 0, i
    while flow.seen[k] != time:
        a = flow.parent[k]
        distance += 1
        if a == TERMINAL:
            flow.seen[k], flow.dist[k] = time, 1
            break
        if a == ORPHAN:
            return FAR
        k = flow.head[a]
    else:
        distance += flow.dist[k]
    found, k = distance, i
    while flow.seen[k] != time:
        flow.seen[k], flow.dist[k] = time, distance
        distance -= 1
        k = flow.head[flow.parent[k]]
    return int(found)
