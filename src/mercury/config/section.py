"""What all tables of the configuration have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic import ValidationInfo as FieldContext
from pydantic_core import PydanticCustomError


def setting(default: Any, description: str, **bounds: Any) -> Any:
    """A setting, what it is for, and the bounds of its value as pydantic names them."""
    return Field(default, description=description, **bounds)


class Section(BaseModel):
    """A table of the configuration file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    # Pairs of settings of which the first may not be above the second.
    ascending: ClassVar[tuple[tuple[str, str], ...]] = ()

    @field_validator("*", mode="before")
    @classmethod
    def _read_none_and_refuse_truth_as_number(cls, value: Any, context: FieldContext) -> Any:
        annotation = cls.model_fields[str(context.field_name)].annotation
        types = get_args(annotation) or (annotation,)
        # TOML and the environment have no null, yet a limit must be removable.
        if isinstance(value, str) and value.lower() == "none" and type(None) in types:
            return None
        # Pydantic reads true as 1.
        if isinstance(value, bool) and (int in types or float in types):
            raise PydanticCustomError("number_type", "Input should be a number")
        return value

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        for key, limit_key in self.ascending:
            value, limit = getattr(self, key), getattr(self, limit_key)
            if value > limit:
                raise mistake(f"{key} = {value} is above {limit_key} = {limit}", key, limit_key)
        return self


class ServiceSection(Section):
    id: str
    metrics_host: str = setting("127.0.0.1", "Address to serve metrics and health on", min_length=1)
    metrics_port: int | None = setting(
        None, "TCP port of metrics and health; none serves neither", ge=0, le=65535
    )

    @property
    def metrics(self) -> tuple[str, int] | None:
        """Address and port of metrics and health, if they are served."""
        return None if self.metrics_port is None else (self.metrics_host, self.metrics_port)


def mistake(sentence: str, *keys: str) -> PydanticCustomError:
    """What is wrong, in a sentence, and the settings that say so."""
    return PydanticCustomError("mistake", "{message}", {"message": sentence, "keys": keys})


def over_defaults(defaults: Mapping[str, Mapping[str, Any]], given: Any) -> Any:
    """Tables that users name, each over the default of its name; others are left to be refused."""
    if not isinstance(given, Mapping):
        return given
    return dict(defaults) | {
        name: {**defaults.get(name, {}), **table} if isinstance(table, Mapping) else table
        for name, table in given.items()
    }
