"""The engine `vllm_servers` as a registered part."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from halfway.trainers.engines.contract import Engine, EngineSetup
from halfway.trainers.engines.part import PlannedRun, Service, SplitEngine
from halfway.trainers.engines.vllm_servers.server_options import SERVER_ENVIRONMENT, ServerOptions, server_command


@dataclass(frozen=True)
class VllmServers(ServerOptions):
    """Sampling through vLLM servers, started here or given by address; lost servers are restarted."""

    def build(self, setup: EngineSetup) -> Engine:
        from halfway.trainers.engines.vllm_servers.start import vllm_servers_engine

        return vllm_servers_engine(self, setup)

    @property
    def can_split(self) -> bool:
        return not self.sleep

    @property
    def samples_across_syncs(self) -> bool:
        return self.can_split

    def split(self, setup: EngineSetup) -> SplitEngine:
        from halfway.trainers.engines.vllm_servers.elsewhere import ServersElsewhere

        engine: Any = self.build(setup)
        return SplitEngine(ServersElsewhere(engine, setup), lambda call: engine)

    def services(self, run: PlannedRun, host: str) -> Sequence[Service]:
        """With GPUs, as many servers as the host's devices can hold; otherwise `count`."""
        cluster, width = run.cluster, self.tensor_parallel
        count = max(1, cluster.devices_per_node // width) if cluster.gpus else self.count
        services = []
        for number in range(count):
            port = cluster.port + 1 + number
            devices = ",".join(str(number * width + i) for i in range(width))
            visible = {"CUDA_VISIBLE_DEVICES": devices} if cluster.gpus else {}
            words = server_command(
                run.model_path,
                f"{host}:{port}",
                self.weight_dtype(run.dtype),
                self,
                run.max_sequences,
                chunked=cluster.gpus,
            )
            services.append(Service(words, port, SERVER_ENVIRONMENT | visible))
        return services
