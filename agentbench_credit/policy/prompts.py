"""From an episode to prompt token ids, and from a response to an action."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from agentbench_credit.errors import ConfigError, ModelError
from agentbench_credit.policy.base import Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from agentbench_credit.trajectory import Ids

PromptMode = Literal["turn", "conversation"]

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)


def parse_action(response: str) -> str:
    """Return the action in a response: the last ``<action>…</action>`` after any reasoning, else all of the text.

    Reasoning that was cut before its end holds no action.

    Args:
        response: The decoded response without special tokens.

    Returns:
        The action, stripped of surrounding white space; it may be empty.
    """
    answer = response.rpartition("</think>")[2]
    if "<think>" in answer:
        return ""
    tagged = _ACTION.findall(answer)
    return str(tagged[-1] if tagged else answer).strip()


class Prompter:
    """Renders prompts with a tokenizer's chat template.

    In mode ``"turn"`` a prompt holds the instruction, the last `history` observations and actions, and the current
    observation. In mode ``"conversation"`` it is the whole conversation: the ids of the previous prompt and response
    exactly as fed and sampled, then the new observation. A template that rewrites earlier turns (dropping their
    reasoning, for example) makes such an extension impossible; the conversation is then rendered anew.

    A special token spelled out in any text is broken by a space, so that no text can end its message or start another.

    Args:
        tokenizer: A tokenizer with a chat template.
        mode: ``"turn"`` or ``"conversation"``.
        history: Earlier turns shown in mode ``"turn"``.

    Raises:
        ModelError: The tokenizer has no chat template.
        ConfigError: There is no such mode; `history` is negative, or given with whole conversations.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, mode: PromptMode = "turn", history: int = 0) -> None:
        if not tokenizer.chat_template:
            mend = "use a chat model, or add chat_template to its tokenizer_config.json"
            raise ModelError("the tokenizer has no chat template", where=tokenizer.name_or_path, mend=mend)
        if mode not in ("turn", "conversation"):
            raise ConfigError(f"there is no prompt mode {mode!r}", mend="use turn or conversation")
        if history < 0 or (mode == "conversation" and history):
            raise ConfigError(f"history is {history} in mode {mode}", mend="use history >= 0 with mode turn only")
        self.tokenizer, self.mode, self.history = tokenizer, mode, history
        added = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
        special = {*tokenizer.all_special_tokens, *added}
        self._special = re.compile("|".join(map(re.escape, sorted(special))) or r"(?!)")

    def first(self, instruction: str, observation: str, *, reference: str | None = None) -> Ids:
        """Return the ids [P] of a prompt without earlier turns.

        Args:
            instruction: What the task is and how to answer.
            observation: The current observation.
            reference: Ground truth to show, for a teacher's prompt.

        Returns:
            Token ids.
        """
        return self._encode(self._render(self.messages(instruction, [observation], [], reference=reference)))

    def next(
        self,
        instruction: str,
        observations: Sequence[str],
        responses: Sequence[str],
        previous: tuple[Ids, Ids] | None,
        *,
        reference: str | None = None,
    ) -> Ids:
        """Return the ids [P] of the prompt after at least one turn.

        Args:
            instruction: What the task is and how to answer.
            observations: All observations so far, the current one last.
            responses: All responses so far, as text; one fewer.
            previous: Prompt and response ids of the last turn; None renders the whole text anew.
            reference: Ground truth to show with the current observation, for a teacher's prompt.

        Returns:
            Token ids.
        """
        messages = self.messages(instruction, observations, responses, reference=reference)
        text = self._render(messages)
        if previous is not None and self.mode == "conversation":
            past = self._render(messages[:-2]) + responses[-1]
            if text.startswith(past):
                return np.concatenate([*previous, self._continuation(text[len(past) :], previous[1])])
        return self._encode(text)

    def messages(
        self, instruction: str, observations: Sequence[str], responses: Sequence[str], *, reference: str | None = None
    ) -> list[Message]:
        """Return a prompt as chat messages.

        Args:
            instruction: What the task is and how to answer.
            observations: All observations so far, the current one last.
            responses: All responses so far, as text; one fewer.
            reference: Ground truth to show with the current observation, for a teacher's prompt.

        Returns:
            The system's, the user's and, in mode ``"conversation"``, the assistant's messages.
        """
        if self.mode == "turn":
            return [self._system(instruction), self._user(self._with_history(observations, responses), reference)]
        messages = [self._system(instruction)]
        for observation, response in zip(observations[:-1], responses, strict=True):
            messages += [self._user(observation, None), {"role": "assistant", "content": self._plain(response)}]
        return [*messages, self._user(observations[-1], reference)]

    def _continuation(self, text: str, response_ids: Ids) -> Ids:
        """Encode what follows a response, without the end-of-turn token that the policy has already sampled."""
        ids = self._encode(text)
        if len(response_ids) and len(ids) and ids[0] == response_ids[-1]:
            return ids[1:]
        return ids

    def _with_history(self, observations: Sequence[str], responses: Sequence[str]) -> str:
        if not self.history:
            return observations[-1]
        shown = list(zip(observations[:-1], responses, strict=True))[-self.history :]
        past = "".join(f"{observation}\n> {parse_action(response)}\n" for observation, response in shown)
        return past + observations[-1]

    def _render(self, messages: list[Message]) -> str:
        return str(self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _encode(self, text: str) -> Ids:
        return np.asarray(self.tokenizer.encode(text, add_special_tokens=False), dtype=np.int32)

    def _system(self, instruction: str) -> Message:
        return {"role": "system", "content": self._plain(instruction)}

    def _user(self, observation: str, reference: str | None) -> Message:
        plan = "" if reference is None else f"\nReference: {reference}"
        return {"role": "user", "content": self._plain(observation + plan)}

    def _plain(self, text: str) -> str:
        return self._special.sub(lambda token: f"{token[0][0]} {token[0][1:]}", text)
