"""What a call may spend: every request holds back the most it can cost before it is sent."""

from __future__ import annotations

import asyncio


class BudgetSpent(Exception):
    """The next request could cost more than what is left."""


class Budget:
    """Tokens and money, spent and held back. A limit of 0 is none. Used within one event loop."""

    def __init__(self, tokens: int, money: float, price: tuple[float, float], spent: tuple[int, int] = (0, 0)) -> None:
        """price: of a million prompt and completion tokens. spent: prompt and completion tokens of earlier calls."""
        self._limits = (tokens, money)
        self._price = price
        self.prompt_tokens, self.completion_tokens = spent
        self._held: list[tuple[int, int]] = []
        self._changed = asyncio.Event()
        self._over = False

    @property
    def money(self) -> float:
        """What has been spent, in the currency of the price."""
        return self._cost(self.prompt_tokens, self.completion_tokens)

    async def hold(self, prompt: int, completion: int) -> None:
        """Holds back the most that a request can cost, as soon as there is room. Give it back by `settle`.

        Raises BudgetSpent when requests under way cannot make room for it any more, and from then on.
        """
        while not self._over:
            if self._room_for(prompt, completion):
                self._held.append((prompt, completion))
                return
            if not self._held:
                self._over = True
                break
            self._changed.clear()
            await self._changed.wait()
        raise BudgetSpent(f"{self}; the next request may cost {prompt} + {completion} tokens")

    def settle(self, held: tuple[int, int], used: tuple[int, int]) -> None:
        """Replaces what was held back for a request by what it used."""
        self._held.remove(held)
        self.prompt_tokens += used[0]
        self.completion_tokens += used[1]
        self._changed.set()

    def _room_for(self, prompt: int, completion: int) -> bool:
        prompt += self.prompt_tokens + sum(held for held, _ in self._held)
        completion += self.completion_tokens + sum(held for _, held in self._held)
        tokens, money = self._limits
        return not (tokens and prompt + completion > tokens) and not (money and self._cost(prompt, completion) > money)

    def _cost(self, prompt: int, completion: int) -> float:
        return (prompt * self._price[0] + completion * self._price[1]) / 1e6

    def __str__(self) -> str:
        tokens, money = self._limits
        parts = [f"{self.prompt_tokens + self.completion_tokens} of {tokens} tokens"] if tokens else []
        parts += [f"{self.money:.2f} of {money:.2f} in money"] if money else []
        return f"spent {' and '.join(parts) or 'nothing that is limited'}"
