"""A single-turn agent loop that may start from a prefix: replayed tokens are part of the response, with mask 0.

verl's workers import the data set's module and with it this module, which registers the loop.
"""

import json
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

START, LOOP = "halfway_start", "halfway_prefix"

Base: Any = AgentLoopBase


@register(LOOP)
class PrefixAgentLoop(Base):  # type: ignore[misc]
    """Generates from the prompt followed by the prefix.

    verl's response length limits prefix and new tokens together, but at least one new token is kept.
    """

    async def run(self, sampling_params: dict[str, Any], priority: int = 0, **row: Any) -> AgentLoopOutput:
        prompt_ids = await self.ct_build_initial_tokens(list(row["raw_prompt"]))
        start: list[int] = json.loads(row[START])
        done = await self.server_manager.generate(
            request_id=uuid4().hex,
            prompt_ids=prompt_ids + start,
            sampling_params=sampling_params,
            priority=int(priority),
        )
        limit = self.rollout_config.response_length
        own = list(done.token_ids)[: max(1, limit - len(start))]
        scores = [0.0] * len(start) + list(done.log_probs)[: len(own)] if done.log_probs else None
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=start + own,
            response_mask=[0] * len(start) + [1] * len(own),
            response_logprobs=scores,
            num_turns=2,
            metrics={},
            extra_fields={**(done.extra_fields or {}), "turn_scores": [], "tool_rewards": []},
        )
