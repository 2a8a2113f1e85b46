"""A change of configuration, worked out before anything is asked of a rank."""

from __future__ import annotations

import dataclasses
from typing import Any

from ddpviz.engines import checks, compiled, configure, shipping
from ddpviz.engines.errors import ConfigurationError
from ddpviz.engines.settings import OWN, PACE, Facts, Settings

#: What a change takes, in the order in which it is said.
RELOADED, REWRAPPED, NEXT_STEP = "reloaded", "re-wrapped", "from the next step"
RESTARTED, RECOMPILED = "restarted", "re-wrapped, Dynamo reset"
NOTHING = "nothing to change"

#: The same as sentences about what is to come.
NEEDS = {
    RELOADED: "reloads the workload: weights, optimizer and steps begin anew",
    RESTARTED: "restarts the engines, some 10 s, as what python_reducer set in a process stays; "
    "weights, optimizer and steps begin anew",
    RECOMPILED: "re-wraps the model on all ranks and resets Dynamo: the next step compiles, which "
    "can take a minute; weights stay",
    REWRAPPED: "re-wraps the model on all ranks; weights stay",
    NEXT_STEP: "applies from the next step; nothing is rebuilt",
}


@dataclasses.dataclass(frozen=True)
class Prediction:
    """``needs``: what a change would take, in a sentence. ``refused``: why it cannot be made."""

    needs: str
    refused: str | None = None


@dataclasses.dataclass(frozen=True)
class Change:
    """``settings``: as they are to be. ``takes``: of :data:`RELOADED` and the others. ``remarks``:
    what has to be said of it besides, a sentence each."""

    settings: Settings
    takes: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    def outcome(self) -> str:
        """What it took, for a person."""
        return "; ".join([" and ".join(self.takes) or NOTHING, *self.remarks])

    def needs(self) -> str:
        """What it will take, in a sentence."""
        needs = "; and ".join(NEEDS[one] for one in self.takes) or NOTHING
        return "; ".join([needs, *self.remarks])


def change(
    settings: Settings, values: dict[str, Any], facts: Facts, options: tuple[str, ...] | None
) -> Change:
    """What ``values`` make of ``settings``. ``options``: names of the workload's, None for any.

    Raises ConfigurationError for what is not known, not of its type, or cannot work here.
    """
    values = dict(values)
    own = {name: values.pop(name) for name in OWN if name in values}
    ddp, given = configure.split(values, facts.ddp_arguments, options)
    if options is not None and (taken := sorted({*options} & {*OWN})):
        raise ConfigurationError(
            f"found the workload's option {taken[0]!r}, a name that the session has itself: "
            "rename it in your function"
        )
    defaults = {} if facts.built is None else facts.built.defaults
    built_in = isinstance(settings.workload, str)
    checked = {name: checks.value(name, one, facts.world_size) for name, one in own.items()}
    new = dataclasses.replace(
        settings,
        ddp={
            **settings.ddp,
            **{name: checks.value(name, one, facts.world_size) for name, one in ddp.items()},
        },
        options={
            **settings.options,
            **{
                name: checks.option(name, one, defaults.get(name), built_in)
                for name, one in given.items()
            },
        },
        **checked,
    )
    checks.together(new, facts)
    before, after = (compiled.remarks(one.compile, one.ddp) for one in (settings, new))
    remarks = tuple(one for one in after if one not in before)
    return Change(new, _takes(settings, new), remarks)


def of_load(settings: Settings, values: dict[str, Any], facts: Facts) -> Prediction:
    """Of taking a workload; its options are known when it is loaded. Raises ConfigurationError."""
    change(settings, values, facts, None)
    return Prediction(NEEDS[RELOADED])


def other_workload(settings: Settings | None, given: Any) -> Settings:
    """The same configuration at another workload, whose options are its own.

    Raises ConfigurationError where there is none of that name.
    """
    workload, name = shipping.workload(given), shipping.name(given)
    if settings is None:
        return Settings(workload, name)
    # Its parameters have other names.
    ddp = {
        argument: value
        for argument, value in settings.ddp.items()
        if argument not in ("delay_all_reduce_named_params", "param_to_hook_all_reduce")
    }
    return dataclasses.replace(settings, workload=workload, name=name, options={}, ddp=ddp)


def _takes(old: Settings, new: Settings) -> tuple[str, ...]:
    if compiled.leaks(old.compile, new.compile):
        return (RESTARTED,)
    if (new.workload, new.options) != (old.workload, old.options):
        return (RELOADED,)
    takes = []
    if new.wrapping() != old.wrapping():
        compiles = old.compile.on or new.compile.on
        takes.append(RECOMPILED if compiles else REWRAPPED)
    if any(getattr(new, name) != getattr(old, name) for name in PACE):
        takes.append(NEXT_STEP)
    return tuple(takes)
