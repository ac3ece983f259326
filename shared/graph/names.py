"""How things print and what settings mean: type labels, counts, dollars, shapes, and one name for aliases of a key."""

from __future__ import annotations

import re
from typing import Any

_WIDTH = {"hiddenDim": "embedDim", "dModel": "embedDim", "dim": "embedDim"}
_INNER = {"dFf": "ffDim", "ffnDim": "ffDim", "intermediateSize": "ffDim"}
_GATED = {"dim": "embedDim", "dModel": "embedDim", "hiddenDim": "ffDim", **_INNER}
_ALIASES: dict[str, dict[str, str]] = {
    "embedding": {"vocabSize": "numEmbeddings"},
    "embeddingBag": {"vocabSize": "numEmbeddings"},
    "feedForward": _WIDTH | _INNER,
    "swiglu": _GATED,
    "geglu": _GATED,
    "concatenate": {"axis": "dim"},
    "batchNorm": {"normalizedShape": "numFeatures"},
    **dict.fromkeys(
        ("multiHeadAttention", "causalAttention", "selfAttention", "crossAttention", "groupedQueryAttention",
         "localAttention", "transformerBlock", "positionalEncoding"),
        _WIDTH,
    ),
}  # fmt: skip


def meaning(type: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings under one name for each meaning: aliases resolved, null left out, one-element lists as numbers."""
    aliases = _ALIASES.get(type, {})
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if value is not None:
            found.setdefault(aliases.get(key, key), value[0] if isinstance(value, list) and len(value) == 1 else value)
    return found


def label(type: str) -> str:
    """`multiHeadAttention` -> `Multi Head Attention`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", type)
    return words[:1].upper() + words[1:]


def short(count: float) -> str:
    """K, M, B, T, P, E with one decimal under 10 units and none above; under 1000 the number itself."""
    for unit, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if abs(count) >= unit:
            return f"{count / unit:.1f}{letter}" if abs(count) / unit < 10 else f"{count / unit:.0f}{letter}"
    return f"{count:.0f}"


def dollars(amount: float) -> str:
    """Three decimals under a dollar, two above."""
    return f"${amount:.3f}" if amount < 1 else f"${amount:,.2f}"


def gigabytes(count: float) -> str:
    """Decimal GB of a number of bytes."""
    size = count / 1e9
    return f"{size:.2f} GB" if size < 10 else f"{size:,.1f} GB"


def percent(change: float) -> str:
    return f"{change:+.1%}"
