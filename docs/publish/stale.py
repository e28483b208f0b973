"""What `lab tables --stale` lists: the stages whose newest timing or profile is of an earlier form of their kernel, or that
have none, and the recordings that are of such kernels. Nothing is wrong with them: pages mark their numbers."""


def recorded_with(sources, kind, stage):
    """The recordings of this kind that have a stage, the newest first, as pairs of a name and what they are."""
    return [(name, record) for name, record in sources.all_of(kind)[::-1] if stage.folder in record.kernels]


def newest(sources, kind, stage):
    """Where a stage was recorded last, and whether its kernel is still that one: the newest recording of it as it is if
    there is one; None if there is none at all."""
    having = recorded_with(sources, kind, stage)
    as_it_is = [each for each in having if not sources.changed_since(each[1], [stage])]
    name, record = next(iter(as_it_is + having), (None, None))
    return record and f"{name}, {record.date[:10]}", bool(as_it_is)


def stale(sources):
    """A row for each stage that is not timed and profiled as it is, and one for each recording of such kernels."""
    stages, recordings = [], []
    for stage in sources.stages.values():
        found = {kind: newest(sources, kind, stage) for kind in ("timing", "profile")}
        if not all(is_same for _, is_same in found.values()):
            stages.append({"stage": stage.folder, **{kind: {"newest": where, "as_it_is": is_same}
                                                     for kind, (where, is_same) in found.items()}})
    for kind in ("timing", "profile", "verification", "triton"):
        for name, record in sources.all_of(kind):
            if changed := sources.changed_since(record, sources.stages.values()):
                recordings.append({"recording": name, "kind": kind, "date": record.date[:10],
                                   "changed_since": [stage.folder for stage in changed]})
    return {"stages": stages, "recordings": recordings}


def stale_tables(found):
    """Pairs of a title and (columns, rows)."""
    def cell(recorded):
        return "never" if recorded["newest"] is None else "" if recorded["as_it_is"] else recorded["newest"]

    stages = [[row["stage"], cell(row["timing"]), cell(row["profile"])] for row in found["stages"]]
    recordings = [[row["recording"], row["date"], ", ".join(folder[:2] for folder in row["changed_since"])]
                  for row in found["recordings"]]
    shown = [("Kernels that were changed since they were recorded, and their newest recording",
              (["stage", "timed last", "profiled last"], stages)),
             ("Recordings of such kernels", (["recording", "date", "changed since"], recordings))]
    return [(title, content) for title, content in shown if content[1]]
