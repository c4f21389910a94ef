"""Which NIC loses packets, where pairs of ranks were measured apart: by what TCP sent again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.findings.stragglers import has_rounds, senders_of
from tcpx_mpi.records import RankInfo, Row, RunHeader
from tcpx_mpi.stragglers.links import ONE_DIRECTION, Link
from tcpx_mpi.units import counted

#: The title of what loses packets.
LOSES = "Loses packets"
#: Of the segments of a link; a sound network is a hundred times below, a busy machine ten times.
_LEAST_SHARE = 0.001
_LEAST_COUNT = 10
#: Of a link that loses nothing to speak of, over the one with the least loss of those that do.
_CLEAN = 0.1
#: Payload of a segment with the usual MTU of 1500; with a larger one, shares look smaller.
_SEGMENT_BYTES = 1448


@dataclass(frozen=True)
class _Sent:
    """Over a link: bytes on the wire, and segments that TCP sent again."""

    wire_bytes: int = 0
    again: int = 0

    @property
    def share(self) -> float:
        return self.again * _SEGMENT_BYTES / self.wire_bytes if self.wire_bytes else 0.0

    @property
    def lossy(self) -> bool:
        return self.again >= _LEAST_COUNT and self.share >= _LEAST_SHARE


def losses(header: RunHeader, rows: Sequence[Row]) -> Iterator[Finding[str]]:
    """Each NIC of which all links to other nodes, in one role, lose packets, while others do not;
    and each link between two nodes that does so alone."""
    links = _between_nodes(header, rows)
    lossy = {link for link, sent in links.items() if sent.lossy}
    if not lossy:
        return
    explained: set[Link] = set()
    for end in (1, 0):
        for nic, own in _by_nic(header, links, end).items():
            others = [sent.share for link, sent in links.items() if link not in own]
            least = min(links[link].share for link in own)
            clean = sum(share <= _CLEAN * least for share in others)
            if len(own) < 2 or not own <= lossy - explained or 2 * clean < len(others):
                continue
            explained |= own
            text = f"{nic}, {ONE_DIRECTION[end]}: {_figures(links, own, others)}"
            yield Finding(
                Severity.DOUBTFUL, LOSES, text,
                "look at the cable, its errors (ethtool -S), the queues and the MTU on the path",
            )  # fmt: skip
    infos = {info.rank: info for info in header.ranks}
    for sender, receiver in sorted(lossy - explained):
        own = {(sender, receiver)}
        others = [sent.share for link, sent in links.items() if link not in lossy]
        text = f"the link from {_nic(infos[sender])} to {_nic(infos[receiver])}"
        yield Finding(Severity.DOUBTFUL, LOSES, f"{text}: {_figures(links, own, others)}")


def _between_nodes(header: RunHeader, rows: Sequence[Row]) -> dict[Link, _Sent]:
    """The losses between nodes of a run in rounds, in which a rank sends to one other in a row;
    only what is known."""
    node = {info.rank: info.node for info in header.ranks}
    found: dict[Link, _Sent] = defaultdict(_Sent)
    if header.averages_only or not has_rounds(header):
        return found
    for row in rows:
        for receiver, sender in senders_of(header, row).items():
            sent, again = int(row.net_sent[sender]), int(row.tcp_retransmits[sender])
            if sent > 0 and again >= 0 and node.get(sender) != node.get(receiver):
                before = found[sender, receiver]
                found[sender, receiver] = _Sent(before.wire_bytes + sent, before.again + again)
    return found


def _by_nic(header: RunHeader, links: Mapping[Link, _Sent], end: int) -> dict[str, set[Link]]:
    infos = {info.rank: info for info in header.ranks}
    found: dict[str, set[Link]] = defaultdict(set)
    for link in links:
        found[_nic(infos[link[end]])].add(link)
    return found


def _nic(info: RankInfo) -> str:
    return f"NIC {info.nic} of {info.host}"


def _figures(links: Mapping[Link, _Sent], own: set[Link], others: Sequence[float]) -> str:
    again = sum(links[link].again for link in own)
    share = again * _SEGMENT_BYTES / sum(links[link].wire_bytes for link in own)
    text = (
        f"{100 * share:.2f} % of the segments were sent again ({again}), "
        f"over {counted(len(own), 'link')}"
    )
    return text + (f"; at most {100 * max(others):.3f} % over the others" if others else "")
