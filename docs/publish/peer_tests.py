"""How the package did in another project's own tests, as tests/peer_tests.sh recorded it."""

import records
from blocks import block


def sentence(record):
    """How many tests passed of those of problems that a stage takes, and how many were left out, by reason."""
    not_drawn = record.left_out.get("not drawn", 0)
    reasons = sorted(((count, why) for why, count in record.left_out.items() if why != "not drawn"), reverse=True)
    left_out = ", ".join(f"{why} ({count:,})" for count, why in reasons)
    drawn = f", drawn from {record.passed + record.failed + not_drawn:,}" if not_drawn else ""
    alone = sum(record.get("each_alone", {}).values())
    calls = f", {alone:,} of these with a call for each document or request" if alone else ""
    skipped = f"{record.skipped:,} skip themselves, and " if record.skipped else ""
    return (f"The {record.project} project's own tests (at {record.project_commit[:7]}) pass with the default stages, "
            f"{record.passed:,} of {record.passed + record.failed:,}{drawn}{calls}, on {record.gpu} "
            f"({record.date[:10]}, commit {record.commit[:7]}, PyTorch {record.torch}; `tests/peer_tests.sh CHECKOUT`). Of its "
            f"{record.collected:,} tests, {skipped}the others need what no stage took then: {left_out}.\n")


@block("peer_tests")
def peer_tests(sources, *_):
    """A sentence for each record, docs/results/GPU-peer-tests.json."""
    paths = sorted(sources.folder.glob("*-peer-tests.json"))
    return "".join(sentence(records.read(path, "peer-tests")) for path in paths)
