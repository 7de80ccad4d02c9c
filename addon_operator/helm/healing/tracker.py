"""Which objects of releases are missing: what releases consist of, compared with what the API server has shown.

Pure: the facts come from charts (`follow`), from watches (`add`, `remove`) and from asking by name (`confirm`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from addon_operator.kube.refs import CUSTOM_RESOURCE_DEFINITIONS, ObjectKey, Resource

GroupVersionKind: TypeAlias = tuple[str, str]
"""`apiVersion` and `kind`."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Release:
    """What one release consists of.

    Attributes:
        objects: those of kinds that are served and can be watched, with full namespaces.
        unserved: those of kinds that the API server does not serve, as in the manifest.
        reported: those of `unserved` that `take_unreported` has returned.
        kinds: of `objects`.
    """

    objects: frozenset[ObjectKey] = frozenset()
    unserved: frozenset[ObjectKey] = frozenset()
    reported: frozenset[ObjectKey] = frozenset()
    kinds: frozenset[GroupVersionKind] = frozenset()


class ObjectTracker:
    """The objects of all releases that are followed."""

    def __init__(self, namespace: str) -> None:
        """Follows nothing.

        Args:
            namespace: of objects whose manifest names none.
        """
        self._namespace = namespace
        self._releases: dict[str, _Release] = {}
        # Which releases an object belongs to, and which objects of a release no watch shows: kept, since events of many
        # objects and questions about many releases come often.
        self._owners: dict[ObjectKey, tuple[str, ...]] = {}
        self._unshown: dict[str, set[ObjectKey]] = {}
        self._kinds: dict[GroupVersionKind, Resource] = {}
        self._present: dict[GroupVersionKind, set[ObjectKey]] = {}
        # They exist, although the watch does not show them: helm or the API server said so.
        self._confirmed: set[ObjectKey] = set()

    @property
    def kinds(self) -> Mapping[GroupVersionKind, Resource]:
        """The kinds to watch."""
        return self._kinds

    def follow(
        self, release: str, objects: Iterable[ObjectKey], find_resource: Callable[[ObjectKey], Resource | None]
    ) -> None:
        """Sets what a release consists of; objects that cannot be listed and watched are left out.

        Args:
            release: its name.
            objects: as in the manifest.
            find_resource: returns the resource of an object's kind; None if the API server does not serve it.
        """
        served: set[ObjectKey] = set()
        unserved: set[ObjectKey] = set()
        for key in objects:
            resource = find_resource(key)
            if resource is None:
                unserved.add(key)
            elif {"list", "watch"} <= set(resource.verbs):
                self._kinds[gvk(key)] = resource
                namespace = (key.namespace or self._namespace) if resource.namespaced else ""
                served.add(dataclasses.replace(key, namespace=namespace))
        before, kinds = self._releases.get(release, _Release()), frozenset(map(gvk, served))
        self._releases[release] = _Release(frozenset(served), frozenset(unserved), before.reported & unserved, kinds)
        added = served - before.objects
        for key in added:
            self._owners[key] = (*self._owners.get(key, ()), release)
        unshown = {key for key in added if key not in self._present.get(gvk(key), ())}
        self._unshown[release] = (self._unshown.get(release, set()) & served) | unshown
        self._release(release, before.objects - served)

    def forget(self, release: str) -> None:
        """Stops following a release."""
        before = self._releases.pop(release, None)
        if before is not None:
            del self._unshown[release]
            self._release(release, before.objects)

    def follows(self, release: str) -> bool:
        """Returns whether a release is followed."""
        return release in self._releases

    def objects(self, release: str) -> frozenset[ObjectKey]:
        """Returns the objects of a release whose kinds are served; none if it is not followed."""
        return self._releases.get(release, _Release()).objects

    def kinds_of(self, release: str) -> frozenset[GroupVersionKind]:
        """Returns the kinds of `objects`."""
        return self._releases.get(release, _Release()).kinds

    def unserved(self, release: str) -> frozenset[ObjectKey]:
        """Returns the objects of a release whose kinds nobody serves; none if it is not followed."""
        return self._releases.get(release, _Release()).unserved

    def take_unreported(self, release: str) -> frozenset[ObjectKey]:
        """Returns each object whose kind nobody serves once: helm cannot restore it until the kind is back."""
        found = self._releases.get(release)
        if found is None:
            return frozenset()
        self._releases[release] = dataclasses.replace(found, reported=found.unserved)
        return found.unserved - found.reported

    def unserved_in(self, group: str) -> dict[str, tuple[ObjectKey, ...]]:
        """Returns the objects, sorted, that kinds of an API group would let helm restore: release -> objects."""
        found = {
            release: tuple(sorted(key for key in state.unserved if group_of(key.api_version) == group))
            for release, state in self._releases.items()
        }
        return {release: keys for release, keys in found.items() if keys}

    def add(self, key: ObjectKey) -> None:
        """Notes that a watch shows an object."""
        present = self._present.get(gvk(key))
        if present is not None and key not in present:
            present.add(key)
            self._confirmed.discard(key)
            for release in self._owners.get(key, ()):
                self._unshown[release].discard(key)

    def remove(self, key: ObjectKey) -> bool:
        """Notes that an object was deleted; returns whether a watch has shown it before."""
        present = self._present.get(gvk(key), set())
        if key not in present:
            return False
        present.remove(key)
        for release in self._owners.get(key, ()):
            self._unshown[release].add(key)
        return True

    def remove_kinds_of(self, definition: str) -> frozenset[ObjectKey]:
        """Notes that the objects of a deleted CustomResourceDefinition are gone; returns those that watches showed."""
        gone = frozenset(key for kind in self._defined_by(definition) for key in self._present[kind])
        for key in gone:
            self.remove(key)
        return gone

    def confirm(self, release: str, *, missing: Collection[ObjectKey] = ()) -> None:
        """Notes that the objects of a release exist, even if no watch shows them, except those that are missing."""
        self._confirmed |= self._unshown.get(release, set())
        self._confirmed.difference_update(missing)

    def unshown(self, release: str) -> tuple[ObjectKey, ...]:
        """Returns the objects of a release that no watch shows, sorted, whether or not they are confirmed."""
        return tuple(sorted(self._unshown.get(release, ())))

    def missing(self, release: str, *, listed: Collection[GroupVersionKind]) -> tuple[ObjectKey, ...]:
        """Returns the objects of a release that seem to be gone, sorted.

        Args:
            release: its name.
            listed: kinds whose objects have all been shown; of the others nothing is known.
        """
        return tuple(key for key in self.unshown(release) if gvk(key) in listed and key not in self._confirmed)

    def releases_of(self, key: ObjectKey) -> list[str]:
        """Returns the releases that an object belongs to, sorted."""
        return sorted(self._owners.get(key, ()))

    def deleted_with(self, deleted: ObjectKey) -> frozenset[ObjectKey]:
        """Returns the followed objects that go away when one is deleted, whichever version of its API names it.

        They are the object itself, what lies in a Namespace, and the objects of a CustomResourceDefinition.
        """
        group = group_of(deleted.api_version)
        same = {
            dataclasses.replace(deleted, api_version=version)
            for version, kind in self._kinds
            if kind == deleted.kind and group_of(version) == group
        }
        is_namespace = (deleted.api_version, deleted.kind) == ("v1", "Namespace")
        defined = self._defined_by(deleted.name) if deleted.kind == CUSTOM_RESOURCE_DEFINITIONS.kind else set()
        found: set[ObjectKey] = set()
        for state in self._releases.values():
            found |= same & state.objects
            if is_namespace:
                found |= {key for key in state.objects if key.namespace == deleted.name}
            if defined:
                found |= {key for key in state.objects if gvk(key) in defined}
        return frozenset(found)

    def _defined_by(self, definition: str) -> set[GroupVersionKind]:
        return {kind for kind, resource in self._kinds.items() if f"{resource.plural}.{resource.group}" == definition}

    def _release(self, release: str, dropped: Iterable[ObjectKey]) -> None:
        """Forgets that objects belong to a release, and kinds that are used no longer."""
        for key in dropped:
            others = tuple(owner for owner in self._owners.pop(key) if owner != release)
            if others:
                self._owners[key] = others
            else:
                self._confirmed.discard(key)
        used = {kind for state in self._releases.values() for kind in state.kinds}
        self._kinds = {kind: resource for kind, resource in self._kinds.items() if kind in used}
        self._present = {kind: self._present.get(kind, set()) for kind in self._kinds}


def gvk(key: ObjectKey) -> GroupVersionKind:
    """Returns the kind of an object."""
    return key.api_version, key.kind


def group_of(api_version: str) -> str:
    """Returns the API group of an `apiVersion`; empty for the core group."""
    return api_version.rpartition("/")[0]
