"""Pages as text: the two observation modes of the official environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agentbench_credit.envs.webshop.site import Piece

_RICH = {
    "text": "{}\n",
    "button": "[button] {} [button_]\n",
    "option": "  [button] {} [button_]\n",
    "chosen option": "  [clicked button] {} [clicked button_]\n",
    "product": "\n[button] {} [button_]\n",
    "visited product": "\n[clicked button] {} [clicked button_]\n",
}


def plain(pieces: Iterable[Piece]) -> str:
    """Return a page in mode ``text``: its texts joined by ``[SEP]``; what is chosen is not marked."""
    return " [SEP] ".join(piece.text for piece in pieces)


def rich(pieces: Iterable[Piece]) -> str:
    """Return a page in mode ``text_rich``: a text a line, buttons marked, chosen options marked and named on top."""
    page, top = "", ""
    for kind, text in pieces:
        page += _RICH[kind].replace("{}", text)
        if kind == "chosen option":
            top = f"You have clicked {text}.\n{top}"
    return top + page


RENDERERS: dict[str, Callable[[Iterable[Piece]], str]] = {"text": plain, "text_rich": rich}
"""The observation modes."""
