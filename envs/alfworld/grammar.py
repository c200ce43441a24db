"""Reads TextWorld's ``.twl2`` grammars: how commands are spelled and what the player is told."""

from __future__ import annotations

import ast
import json
import re
import textwrap
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import TypeAlias

from agentbench_credit.envs.alfworld.engine import GameFileError, UnsupportedGameError
from agentbench_credit.envs.alfworld.pddl import Typed


@dataclass(frozen=True)
class Query:
    """Facts that must hold together, with variables."""

    facts: tuple[tuple[str, tuple[Typed, ...]], ...]
    """Predicate (``not_…`` for a fact that ceased to hold) and arguments."""


@dataclass(frozen=True)
class Text:
    """Text that stands for itself."""

    text: str


@dataclass(frozen=True)
class Call:
    """The text of a rule."""

    rule: str


@dataclass(frozen=True)
class Value:
    """An expression of variables, such as ``o.indefinite + ' ' + o.name``."""

    code: CodeType


@dataclass(frozen=True)
class Each:
    """A text once for every match of a query, once if there is none."""

    text: Call | Value
    query: Query | None


@dataclass(frozen=True)
class Listed:
    """The same with commas between."""

    each: Each


@dataclass(frozen=True)
class Unreadable:
    """What TextWorld's own parser stops at; an error if it is ever needed."""

    text: str


Symbol: TypeAlias = "Text | Call | Value | Each | Listed | Unreadable"


@dataclass(frozen=True)
class Rule:
    """One way to say something."""

    condition: Query | None
    """Only if this matches."""
    symbols: tuple[Symbol, ...]
    """What is said, in order."""


@dataclass(frozen=True)
class Wording:
    """How an action is spelled and answered."""

    command: tuple[Symbol, ...]
    """The command."""
    feedback: tuple[Symbol, ...]
    """What the player is told after it."""


@dataclass(frozen=True)
class Grammar:
    """All wordings."""

    actions: dict[str, Wording]
    """By the action's name in lower case."""
    rules: dict[str, tuple[Rule, ...]]
    """By the rule's name; the first whose condition matches is used."""


_TOKEN = re.compile(r'"""(?P<block>.*?)"""|"(?P<string>[^"]*)"|(?P<word>[\w/-]+)|(?P<mark>::|[;{}])|\s+|#[^\n]*', re.S)
_SYMBOL = re.compile(
    r"""
    \#(?P<call>[\w()/!<>\-\s,.]+)\#
    | (?P<listed>\[)?
      \{(?:\#(?P<inner>[\w()/!<>\-\s,.]+)\#|(?P<value>[^|\[\]{}\n<>]++))\s*(?:\|\s*+(?P<given>[^;|{}\n\[\]#]+))?\}
      (?(listed)\])
    | (?P<text>[^;|"<>\[\]\#{}]+)
    """,
    re.X,
)
"""What has been matched is never given back (``++``): a torn text of many blanks is refused in no time."""
_FACT = re.compile(r"\s*(?P<negated>!?)(?P<name>[\w-]+)\s*\((?P<arguments>[^()]*)\)\s*")
_ATTRIBUTES = ("id", "type", "name", "definite", "indefinite")


def read_grammar(text: str) -> Grammar:
    """Read a grammar.

    Args:
        text: The ``.twl2`` file.

    Returns:
        The grammar.

    Raises:
        GameFileError: It is torn.
        UnsupportedGameError: It uses something that is not known here.
    """
    tokens = _tokens(text)
    actions: dict[str, Wording] = {}
    rules: dict[str, list[dict[str, str]]] = {}
    try:
        while tokens:
            if tokens.pop() == "grammar":
                rules |= json.loads(textwrap.dedent(_field(tokens)))
                continue
            name, fields = tokens.pop().lower(), {}
            _expect(tokens, "{")
            while (field := tokens.pop()) != "}":
                fields[field] = _field(tokens)
            lines = textwrap.dedent(fields.get("grammar", "{}")).split("\n")
            rules |= json.loads("\n".join(line for line in lines if not line.lstrip().startswith("#")))
            actions[name] = Wording(read_symbols(fields["template"]), read_symbols(fields["feedback"]))
    except (IndexError, KeyError, ValueError) as error:
        what = f"the grammar is torn ({type(error).__name__}: {error})"
        raise GameFileError(what, where="TextWorld grammar") from error
    return Grammar(actions, {name: tuple(map(_rule, entries)) for name, entries in rules.items()})


@lru_cache(maxsize=4096)  # games differ in one sentence of the grammar
def read_symbols(text: str) -> tuple[Symbol, ...]:
    """Read what is to be said.

    Args:
        text: Such as ``"You open the {r.name}."``.

    Returns:
        Its parts.
    """
    symbols: list[Symbol] = []
    text = text.lstrip()  # TextWorld takes blanks at the beginning for a comment
    position = 0
    while position < len(text):
        match = _SYMBOL.match(text, position)
        if match is None or "\t" in text or text.startswith("//"):
            symbols.append(Unreadable(text[position:]))
            break
        position = match.end()
        if match["text"]:
            symbols.append(Text(match["text"].replace("\\n", "\n")))
        elif match["call"]:
            symbols.append(Call(match["call"]))
        else:
            inner = Call(match["inner"]) if match["inner"] else _value(match["value"])
            each = Each(inner, read_query(match["given"]) if match["given"] else None)
            symbols.append(Listed(each) if match["listed"] else each)
    return tuple(symbols)


@lru_cache(maxsize=4096)
def read_query(text: str) -> Query:
    """Read facts joined by ``&``, such as ``"holds(a:agent, o:object)"``.

    Args:
        text: The facts.

    Returns:
        The query.

    Raises:
        UnsupportedGameError: It is something else.
    """
    facts = []
    for part in text.split("&"):
        match = _FACT.fullmatch(part)
        if match is None:
            raise UnsupportedGameError(f"the condition {text!r} is not understood", where="TextWorld grammar")
        arguments = [argument.strip() for argument in match["arguments"].split(",") if argument.strip()]
        name = ("not_" if match["negated"] else "") + match["name"]
        facts.append((name, tuple(_placeholder(argument) for argument in arguments)))
    return Query(tuple(facts))


def _placeholder(text: str) -> Typed:
    name, _, kind = (part.strip() for part in text.partition(":"))
    return name, kind or name.rstrip("'")


def _value(text: str) -> Value:
    """Compile an expression after making sure that it only joins attributes and texts."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        raise UnsupportedGameError(f"the expression {text!r} is not understood", where="TextWorld grammar") from None
    for node in ast.walk(tree):
        known = isinstance(node, ast.Expression | ast.Name | ast.Load | ast.BinOp | ast.Add | ast.BoolOp | ast.Or)
        known = known or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        if not (known or (isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES)):
            raise UnsupportedGameError(f"the expression {text!r} is not understood", where="TextWorld grammar")
    return Value(compile(tree, "<grammar>", "eval"))


def _rule(entry: dict[str, str]) -> Rule:
    condition = entry.get("condition")
    return Rule(read_query(condition) if condition else None, read_symbols(entry["rhs"]))


def _tokens(text: str) -> list[str]:
    """Return the tokens, the last first."""
    tokens: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            what = f"{text[position : position + 20]!r} is not understood"
            raise GameFileError(what, where=f"TextWorld grammar, line {text.count(chr(10), 0, position) + 1}")
        position = match.end()
        tokens += [found for found in match.groups() if found is not None]
    return tokens[::-1]


def _field(tokens: list[str]) -> str:
    _expect(tokens, "::")
    value = tokens.pop()
    _expect(tokens, ";")
    return value


def _expect(tokens: list[str], wanted: str) -> None:
    if (found := tokens.pop()) != wanted:
        raise ValueError(f"{wanted} is missing before {found[:20]!r}")
