"""Every error Mercury raises, named after the condition."""

from __future__ import annotations


class MercuryError(Exception):
    """Base of all errors of this package."""


class ConfigurationError(MercuryError):
    """A setting is unknown, malformed or contradicts another."""


class AreaError(MercuryError, ValueError):
    """An area that cannot exist: negative radius, NaN, too few points."""


class FilterError(MercuryError, ValueError):
    """A content filter that does not parse; `column` is where."""

    def __init__(self, message: str, column: int = 0) -> None:
        super().__init__(message)
        self.column = column


class TooManyInterestsError(MercuryError):
    """A broker knows as many different subscriptions as it may."""


class MessageError(MercuryError, ValueError):
    """A message that cannot be built or sent."""


class ArgumentError(MessageError, TypeError):
    """An argument of the wrong type or out of range; `argument` is its name."""

    def __init__(self, argument: str, sentence: str) -> None:
        super().__init__(sentence)
        self.argument = argument


class MessageTooLargeError(MessageError):
    """The encoded message does not fit in one UDP packet."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"message is {size} bytes encoded, one packet carries at most {limit}")
        self.size = size
        self.limit = limit


class PacketError(MercuryError):
    """Bytes from the network that are not a message; `reason` is what it is counted under."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class MoosError(MercuryError, ValueError):
    """An invalid text or datagram of MOOS; `reason` is what it is counted under."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class SessionError(MercuryError):
    """A session cannot do what was asked."""


class NotConnectedError(SessionError):
    """The client has no session now."""


class SessionRefusedError(SessionError):
    """The adapter refused the session; `reason` is what it said."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(f"the adapter refused the session: {words}")
        self.reason = reason


class DetectionError(MercuryError, ValueError):
    """An invalid rule of detection; `keys` are the settings that are wrong or contradict."""

    def __init__(self, message: str, *keys: str) -> None:
        super().__init__(message)
        self.keys = keys


class SnapshotError(DetectionError):
    """Bytes that are no state of detection, or a damaged one."""


class MatchingError(MercuryError, ValueError):
    """An invalid publication or subscription; `reason` is what is wrong with it."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class LoadError(MercuryError):
    """Load cannot be generated, or its target cannot be reached."""


class RoadsError(MercuryError):
    """A file of roads that cannot be read, or roads without possible trips."""


class RequestError(MercuryError):
    """A request was refused or not answered in time."""


class NotSettledError(MercuryError, TimeoutError):
    """The outcome of a message was not known in time."""


class AddressInUseError(MercuryError):
    """A UDP or TCP port is taken."""


class AlreadyRunningError(MercuryError):
    """Another `mercury up` runs the parts of a bus on this machine, as `process`."""

    def __init__(self, bus_uri: str, process: int) -> None:
        super().__init__(
            f"mercury up runs on {bus_uri} already, as process {process}: "
            f"`mercury down --bus {bus_uri}` ends it"
        )
        self.process = process


class PipelineError(MercuryError):
    """Spark cannot be started, or a job cannot do what was asked."""


class JobFailedError(PipelineError):
    """A job that was running has ended; starting it again may help."""


class JavaError(MercuryError):
    """There is no Java to run on, or an archive cannot be fetched."""


class DevError(MercuryError):
    """A component for development cannot be started."""


class BusError(MercuryError):
    """The bus cannot do what was asked."""


class BusUnavailableError(BusError):
    """The bus cannot be opened: locked, read-only, missing folder, unknown scheme."""


class BusAwayError(BusUnavailableError):
    """The bus was open and cannot be reached now, as it has logged; it keeps what is appended."""


class BusFullError(BusError):
    """No space is left to append to the bus."""


class BusCorruptError(BusError):
    """The file is not a bus, or is damaged."""


def shown(value: object) -> str:
    """A value from outside as an error's sentence quotes it: never long."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return repr(value[:40])
    return repr(value)[:40] if isinstance(value, int | float) else f"a {type(value).__name__}"
