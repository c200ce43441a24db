"""Nouns of a product's name, which the reward compares: spaCy's tags, or rules where there is no spaCy."""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, NamedTuple

from agentbench_credit.envs.webshop.words import known_words

SPACY_MODELS = ("en_core_web_lg", "en_core_web_md", "en_core_web_sm")
"""Models that are looked for, the official one first."""
NOUN_TAGS = ("NOUN", "PROPN")

_WORD = re.compile(r"[^\W\d_]{2,}")
_OTHER_WORDS = frozenset(known_words("not nouns"))
_OTHER_ENDINGS = ("ly", "ful", "less", "ous", "able", "ible", "est")


class Tagger(NamedTuple):
    """Finds nouns."""

    name: str
    """What is recorded in results, such as ``"spacy:en_core_web_lg"`` or ``"rules-1"``."""
    nouns: Callable[[str], tuple[str, ...]]
    """Returns the nouns of a text, lower case, repeated ones repeated."""


@lru_cache(maxsize=65536)
def nouns_by_rules(text: str) -> tuple[str, ...]:
    """Return the words of two letters and more that look neither like function words nor like adjectives or adverbs."""
    words = _WORD.findall(text.lower())
    return tuple(word for word in words if word not in _OTHER_WORDS and not word.endswith(_OTHER_ENDINGS))


RULES = Tagger("rules-1", nouns_by_rules)
"""The tagger that needs nothing; the embedded shop always uses it, so that its rewards are the same everywhere."""


@cache
def official_tagger() -> Tagger:
    """Return spaCy's tagger with the best model that is installed, else `RULES`; all but the official one warn."""
    differ = "so that rewards can differ from the official ones"
    for model in SPACY_MODELS:
        try:
            tag: Any = importlib.import_module("spacy").load(model, exclude=["ner", "lemmatizer"])
        except (ImportError, OSError, ValueError):
            continue

        @lru_cache(maxsize=65536)
        def nouns(text: str, tag: Any = tag) -> tuple[str, ...]:
            return tuple(token.text.lower() for token in tag(text) if token.pos_ in NOUN_TAGS)

        if model != SPACY_MODELS[0]:
            warnings.warn(f"the title score finds nouns by {model}, not by {SPACY_MODELS[0]}, {differ}", stacklevel=2)
        return Tagger(f"spacy:{model}", nouns)
    what = f"no spaCy model ({', '.join(SPACY_MODELS)}): the title score finds nouns by rules ({RULES.name})"
    warnings.warn(f"{what}, {differ}", stacklevel=2)
    return RULES
