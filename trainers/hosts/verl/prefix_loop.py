"""An agent loop of one turn that may start from a prefix: replayed tokens are in the response, with mask 0.

verl's workers import the data set's module, and so this one, which registers the loop.
"""

import json
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

START, LOOP = "halfway_start", "halfway_prefix"

Base: Any = AgentLoopBase


@register(LOOP)
class PrefixAgentLoop(Base):  # type: ignore[misc]
    """Continues the prompt and the prefix. A response is as long as it could be without the prefix, and no longer."""

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
