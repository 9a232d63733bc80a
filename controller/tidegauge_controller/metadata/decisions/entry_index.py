"""Access control entries by what filters name: thousands of filters need not look at thousands of entries each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidegauge.cluster_metadata.access_lists import WILDCARD, Binding, Filter, PatternType

_Entries = dict[str, Binding]


class EntryIndex:
    """Finds the entries that filters match, once for each filter: a request may have the same one thousands of times.

    Args:
        entries: of the image, by their ids.
    """

    def __init__(self, entries: Mapping[str, Binding]) -> None:
        self._all = dict(entries)
        self._by_name: dict[str, _Entries] = {}
        self._by_principal: dict[str, _Entries] = {}
        self._by_host: dict[str, _Entries] = {}
        for entry_id, binding in entries.items():
            self._by_name.setdefault(binding.pattern.name, {})[entry_id] = binding
            self._by_principal.setdefault(binding.entry.principal, {})[entry_id] = binding
            self._by_host.setdefault(binding.entry.host, {})[entry_id] = binding
        self._prefix_lengths = sorted({len(name) for name in self._by_name})
        self._found: dict[Filter, _Entries] = {}

    def matching(self, wanted: Filter) -> Mapping[str, Binding]:
        """Return the entries that a filter matches, in the order of the image."""
        found = self._found.get(wanted)
        if found is None:
            candidates = min(self._candidates(wanted), key=len)
            found = self._found[wanted] = {
                entry_id: binding
                for entry_id, binding in sorted(candidates.items())
                if wanted.matches_pattern(binding.pattern) and wanted.matches_entry(binding.entry)
            }
        return found

    def _candidates(self, wanted: Filter) -> Iterable[_Entries]:
        """Yield sets of entries, each of which has all that a filter may match."""
        yield self._all
        if wanted.principal is not None:
            yield self._by_principal.get(wanted.principal, {})
        if wanted.host is not None:
            yield self._by_host.get(wanted.host, {})
        if wanted.name is not None:
            names = [wanted.name]
            if wanted.pattern_type is PatternType.MATCH:
                names += [WILDCARD, *(wanted.name[:length] for length in self._prefix_lengths)]
            found: _Entries = {}
            for name in names:
                found.update(self._by_name.get(name, {}))
            yield found
