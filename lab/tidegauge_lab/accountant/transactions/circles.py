"""Circles in a graph: groups of nodes each of which reaches all others of its group (Tarjan, 1972)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping


def circles(edges: Mapping[str, Iterable[str]]) -> Iterator[frozenset[str]]:
    """Yield the strongly connected components of two nodes or more.

    Args:
        edges: of each node the nodes that it points to.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in edges:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        work = [(root, iter(edges.get(root, ())))]
        while work:
            node, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    yield from _popped(node, stack, on_stack)
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(edges.get(following, ()))))
            elif following in on_stack:
                low[node] = min(low[node], index[following])


def _popped(node: str, stack: list[str], on_stack: set[str]) -> Iterator[frozenset[str]]:
    component: list[str] = []
    while not component or component[-1] != node:
        component.append(stack.pop())
        on_stack.discard(component[-1])
    if len(component) > 1:
        yield frozenset(component)
