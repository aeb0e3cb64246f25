"""Makes the JSON schema of the YAML files from the settings' types and the registries."""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

import msgspec

from halfway.controllers import CONTROLLERS
from halfway.controllers.chains import MEMBERS
from halfway.curriculum import Registry, UserError
from halfway.curriculum.support.components import plain
from halfway.experiments.catalogue import attribute_texts, first_line
from halfway.experiments.config.comparison import ComparisonConfig
from halfway.experiments.config.run import RunConfig
from halfway.experiments.propel.config import ArmConfig, PropelConfig

Schema = dict[str, Any]
REFERENCE = {"type": "string", "pattern": r"\$\{.+\}"}
BASE = "file that this one is laid over"
STUDY_ONLY = ("domain", "activations", "solver", "generator", "oracles", "sweep", "corpus")
"""Fields that identify a study of task generators."""


class Writer:
    """Writes schemas of settings; repeated ones go into `parts`.

    A file may be merged over its base, so no field is required.
    """

    def __init__(self) -> None:
        self.parts: dict[str, Schema] = {}

    def settings(self, kind: Any) -> Schema:
        """A mapping with the fields of a dataclass."""
        texts, hints = attribute_texts(kind), get_type_hints(kind, include_extras=True)
        properties = {}
        for field in fields(kind):
            if field.init:
                properties[field.name] = self._field(hints[field.name], field, texts.get(field.name, ""))
        about = first_line(kind.__doc__)
        return {"type": "object", "description": about, "properties": properties, "additionalProperties": False}

    def component(self, registry: Registry) -> Schema:
        """`name`, or `{name: options}`."""
        options = {name: self._part(registry, name) for name in registry.names()}
        mapping = {"type": "object", "properties": options, "additionalProperties": False, "maxProperties": 1}
        return {"anyOf": [{"enum": [*options, None]}, mapping]}

    def members(self) -> Schema:
        """A list of controllers, or changes of a base's list by label."""
        named = {name: self._part(CONTROLLERS, name) for name in CONTROLLERS.names()}
        for name in named:  # an entry with its own label names its controller in `use`
            self.parts[f"{CONTROLLERS.what}.{name}"].setdefault("properties", {})["use"] = {"const": name}
        labelled = {"type": "object", "anyOf": [*named.values()], "required": ["use"]}
        entry = {"type": "object", "properties": named, "additionalProperties": labelled, "maxProperties": 1}
        listed = {"type": "array", "items": {"anyOf": [{"enum": [*named]}, entry]}, "minItems": 1}
        return {"anyOf": [listed, {"type": "object"}]}

    def _field(self, hint: Any, field: Field[Any], about: str) -> Schema:
        schema = self._value(hint)
        default = plain(field.default if field.default is not MISSING else None)
        shown = {"default": default} if isinstance(default, bool | int | float | str) else {}
        return {**schema, **({"description": about} if about else {}), **shown}

    def _value(self, hint: Any) -> Schema:
        for reader in getattr(hint, "__metadata__", ()):
            if reader is MEMBERS:
                return self._shared("controllers", self.members)
            return self.component(reader.registry) if reader.registry else {"type": "object"}
        if isinstance(hint, type) and is_dataclass(hint):
            return self._shared(hint.__name__, lambda: self.settings(hint))
        schema = msgspec.json.schema(hint)
        return schema if schema.get("type") in (None, "string") else {"anyOf": [schema, REFERENCE]}

    def _part(self, registry: Registry, name: str) -> Schema:
        def options() -> Schema:
            try:
                kind = registry.get(name)
            except (ImportError, UserError):  # it needs a package that is not installed
                kind = None
            own = self.settings(kind) if is_dataclass(kind) else {"type": "object"}
            return own | {"type": ["object", "null"]}

        return self._shared(f"{registry.what}.{name}", options)

    def _shared(self, key: str, write: Callable[[], Schema]) -> Schema:
        """Write a schema once; returns a reference to it."""
        if key not in self.parts:
            self.parts[key] = {}  # for a part that contains itself
            self.parts[key] = write()
        return {"$ref": f"#/$defs/{key}"}


def schema() -> Schema:
    """The JSON schema (draft 2020-12) of a run, a comparison or a study of task generators."""
    writer = Writer()
    run, study = writer.settings(RunConfig), writer.settings(PropelConfig)
    comparison, of_arm = writer.settings(ComparisonConfig), writer.settings(ArmConfig)
    fields_of_run = {"$ref": "#/$defs/run"}
    own = comparison["properties"] | {
        "base": {"description": BASE, "anyOf": [{"type": "string"}, fields_of_run]},
        "arms": _named(run | {"properties": run["properties"] | {"tune": {"type": "object"}}}),
        "instances": {"type": "array", "items": fields_of_run},
        "tune": {"anyOf": [comparison["properties"]["tune"], {"type": "null"}]},  # null takes a base's sweep out
    }
    below = {"base": {"description": BASE, "type": "string"}}
    fields_of_arm = of_arm | {"properties": {k: study["properties"][k] for k in of_arm["properties"]}}
    study["properties"] |= {"arms": _named(fields_of_arm), **below}
    both = run | {"properties": {**run["properties"], **own}, "description": first_line(RunConfig.__doc__)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Halfway: a run, a comparison, or a study of task generators",
        "if": {"anyOf": [{"required": [name]} for name in STUDY_ONLY]},
        "then": study,
        "else": both,
        "$defs": {"run": run | {"properties": run["properties"] | below}, **writer.parts},
    }


def _named(what: Schema) -> Schema:
    """The schema of a mapping from names to this schema, or null."""
    return {"type": "object", "additionalProperties": {"anyOf": [what, {"type": "null"}]}}
