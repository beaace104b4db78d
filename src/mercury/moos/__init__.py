"""MOOS communities, bridged to each other and to Mercury (pMediator)."""

from mercury.moos.bridge import BridgeReport, MoosBridge, Posting
from mercury.moos.gateway import MoosGateway
from mercury.moos.mission_file import read_moos_file
from mercury.moos.node_report import NodeReport, read_node_report
from mercury.moos.packet import MoosPacket, read_packet, write_packet
from mercury.moos.settings import BridgeSettings, Endpoint, bridge_settings
from mercury.moos.text_forms import (
    AckMessage,
    NodeMessage,
    read_ack_message,
    read_mediated_message,
    read_node_message,
    write_ack_message,
    write_node_message,
)

__all__ = [
    "AckMessage",
    "BridgeReport",
    "BridgeSettings",
    "Endpoint",
    "MoosBridge",
    "MoosGateway",
    "MoosPacket",
    "NodeMessage",
    "NodeReport",
    "Posting",
    "bridge_settings",
    "read_ack_message",
    "read_mediated_message",
    "read_moos_file",
    "read_node_message",
    "read_node_report",
    "read_packet",
    "write_ack_message",
    "write_node_message",
    "write_packet",
]
