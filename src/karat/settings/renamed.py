"""Settings that earlier versions called otherwise: whoever writes the old name is told the new one."""

from collections.abc import Collection

# A setting or a whole section -> where it went. A section that was split went to several places.
RENAMED: dict[str, tuple[str, ...]] = {
    "algorithm": ("methods.ieg", "methods.l2r", "methods.mixmatch_kl"),
    "data.labels_file": ("data.corrections",),
}


def new_name(name: str, legal: Collection[str]) -> str | None:
    """Say what a setting is called now, of the legal names; None where it never had another name.

    >>> new_name("algorithm.views", {"methods.ieg.views", "methods.mixmatch_kl.views"})
    'algorithm.views is now methods.ieg.views (and methods.mixmatch_kl.views).'
    """
    for old, places in RENAMED.items():
        if name == old or name.startswith(f"{old}."):
            found = [new for new in (place + name.removeprefix(old) for place in places) if new in legal]
            others = f" (and {', '.join(found[1:])})" if found[1:] else ""
            return f"{name} is now {found[0]}{others}." if found else None
    return None
