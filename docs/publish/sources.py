"""What the pages are made of: the recordings, and what `lab` says of the stages, their diffs and the work they do."""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from functools import cache, cached_property
from pathlib import Path

import records
from blocks import Failure


# The GPU that the pages speak of. Recordings of others stand beside its own.
SHOWN_GPU = "NVIDIA H200"
# Profiles. A stage has the first that shows its change, or else the first that has it at all.
PROFILES = ("h200", "h100", "h100-backward", "h200-parts", "h200-stay", "h200-prefix", "h200-fp8",
            "h200-fp8-long", "h200-fp8-narrow", "h200-fp8-sweep", "h200-e4m3-wide")
# Kernels of one mask that left the ladder, each with the stage that has their types and the regime that they were timed in.
TAKEN_OVER = {"68_document_gradients": ("97_any_mask_gradients", "backward-packed"),
              "69_column_gradients": ("97_any_mask_gradients", "backward-column-bounds"),
              "97_dropout_gradients": ("97_any_mask_gradients", "backward-dropout"),
              "98_tile_gradients": ("97_any_mask_gradients", "backward-tiles")}


class Stage:
    """One row of `lab list --json`."""

    def __init__(self, listed, properties):
        self.folder, self.change, self.shows_in = listed["stage"], listed["change"], listed["shows_in"]
        self.number = int(self.folder[:2])
        self.part, self.fingerprint = properties["part"], properties["fingerprint"]
        self.formerly = properties["formerly"]
        self.parent = int(listed["parent"][:2]) if listed["parent"] else -1
        self.head_dims = [int(d) for d in listed["head_dims"].split(",")]
        self.backward = properties["pass"] == "backward"
        self.experiment, self.for_order = properties["experiment"], properties["for_order"]
        self.capability = properties["compute_capability"]  # the only one it runs on, if it is one
        self.takes, self.in_e4m3 = tuple(properties["takes"].split()), properties["in_e4m3"]  # "", "KV" or "QKV"
        self.at_once = [tuple(words.split()) for words in properties["at_once"].split(";")]  # of these, in one call
        self.last_of_part, self.eight_bits = properties["last_of_part"], properties["eight_bits"]
        self.counted_on, self.counted_parent = properties["counted_on"], properties["counted_parent"]
        self.parent_counted_on = properties["parent_counted_on"]


class Sources:
    """`lab` is the path of the program, and `folder` that of the recordings."""

    def __init__(self, lab, folder=records.RESULTS):
        self.lab, self.folder = lab, folder
        self.lines, self.counted, self.kept = {}, {}, {}

    # What lab says

    def ask(self, *words):
        with tempfile.TemporaryDirectory() as folder:
            if words[0] in ("count", "diff", "verify") and self._answers:
                folder = self._answers
            answer = Path(folder) / f"{hashlib.sha256(repr(words).encode()).hexdigest()}.json"
            if not answer.exists():
                done = subprocess.run([self.lab, *words, "--json", answer], capture_output=True, text=True, check=False)
                if done.returncode != 0:
                    answer.unlink(missing_ok=True)
                    raise Failure(done.stderr.strip().split("\n")[-1].removeprefix("lab: "), done.returncode)
            return json.loads(answer.read_text(encoding="utf-8"))

    @cached_property
    def _answers(self):
        """Where answers are kept that follow from the program and the kernels: with the compiled kernels, until one of
        these changes. None if it is not in a build folder."""
        kernels = Path(self.lab).resolve().parent / "kernels"
        stages = Path(os.environ.get("LADDER_STAGES") or records.ROOT / "stages")
        if not kernels.is_dir():
            return None
        state = hashlib.sha256(Path(self.lab).read_bytes())
        for file in sorted(path for pattern in ("*.h", "*.cuh", "*/*.cu", "*/*.cuh") for path in stages.glob(pattern)):
            state.update(file.read_bytes())
        kept = kernels / "answers" / state.hexdigest()
        kept.mkdir(parents=True, exist_ok=True)
        for other in kept.parent.iterdir():  # not the folder itself, in which another process may write by now
            if other != kept:
                shutil.rmtree(other, ignore_errors=True)
        return kept

    @cached_property
    def listed(self):
        return self.ask("list")

    @cached_property
    def stages(self):
        """By number, in the order in which they are read."""
        properties = {row["stage"]: row for row in self.listed["properties"]}
        found = [Stage(row, properties[row["stage"]]) for row in self.listed["stages"]]
        return {stage.number: stage for stage in found}

    @cached_property
    def of_8_bits(self):
        """Numbers of the stages with such products."""
        return {stage.number for stage in self.stages.values() if stage.eight_bits}

    @cached_property
    def regimes(self):
        return {row["regime"]: row for row in self.listed["regimes"]}

    def decodes(self, regime):
        return regime in self.regimes and self.regimes[regime]["decoding"]

    def is_plain(self, regime):
        """Whether its masks are causal ones or none."""
        return regime not in self.regimes or not self.regimes[regime]["features"]

    def sweeps(self, regime):
        return regime in self.regimes and self.regimes[regime]["sweep"]

    def stage(self, number):
        if number not in self.stages:
            raise Failure(f"there is no stage {number:02}")
        return self.stages[number]

    def of_part(self, part):
        return [stage for stage in self.stages.values() if stage.part == part]

    def changed_lines(self, stage):
        """Lines added or changed against the parent; "" for a stage that has none."""
        if stage.number not in self.lines:
            self.lines[stage.number] = str(self.ask("diff", stage.folder)["changed_lines"]) if stage.parent >= 0 else ""
        return self.lines[stage.number]

    def work(self, stages, options):
        """What these stages do on one problem, which is given as the options of `lab count`: its name, and the counters
        by folder, but for those that are 0 for all. Others that are counted on it are counted at once."""
        folders = [stage.folder for stage in stages]
        key = (options, stages[0].backward)
        case, counted = self.counted.setdefault(key, ("", {}))
        if missing := [folder for folder in folders if folder not in counted]:
            for stage in self.stages.values() if not counted else ():
                if (stage.counted_on, stage.backward) == key:
                    missing.append(stage.folder)
                if (stage.parent_counted_on, stage.backward) == key:
                    missing.append(stage.counted_parent)
            answer = self.ask("count", *dict.fromkeys(missing), *options.split())
            case = answer["case"]
            for folder in missing:
                counted[folder] = {row["counter"]: row[folder] for row in answer["work"]}
                if None in counted[folder].values():
                    raise Failure(next(note for note in answer["notes"] if note.startswith(folder)), 3)
            self.counted[key] = case, counted
        return case, [counted[folder] for folder in folders]

    @cached_property
    def counted_as(self):
        """A function that returns the operations of a problem, and its bytes where they count."""
        return cache(lambda shape, causal, backward: {
            name: value for name, value in self.ask(
                "list", "--for", ",".join(map(str, shape)), *["--causal"] * causal, *["--backward"] * backward).items()
            if name in ("flops", "bytes") and value is not None})

    # What was recorded

    def record(self, name, kind="timing"):
        """None if there is no such file."""
        path = self.folder / f"{name}.json"
        if name not in self.kept:
            self.kept[name] = self.of_today(records.read(path, kind)) if path.exists() else None
        return self.kept[name] and records.of_kind(kind, self.kept[name], path)

    def need(self, name):
        return self.record(name) or records.read(self.folder / f"{name}.json", "timing")

    @cached_property
    def called(self):
        """The stages by the folders that recordings name them by, now and formerly."""
        return {stage.formerly: stage for stage in self.stages.values() if stage.formerly} | {
            stage.folder: stage for stage in self.stages.values()}

    def named_today(self, rows):
        """Rows that name a stage by its folder, without those of stages that are no more."""
        return [records.Fields(row, stage=self.called[row["stage"]].folder) for row in rows if row["stage"] in self.called]

    def take_over(self, record):
        """Gives the rows of a kernel that left the ladder to the stage that has its types, as an earlier form of that
        stage, where the record has no row of the stage itself."""
        for left, (folder, regime) in TAKEN_OVER.items():
            rows = [row for row in record["rows"] if row.get("folder") == left and row.regime == regime]
            stage = self.called.get(folder)
            if rows and stage and not {stage.folder, stage.formerly} & record["kernels"].keys():
                record["kernels"][folder] = record["kernels"].pop(left)
                for row in rows:
                    row.update(stage=stage.number, folder=folder, shows_here=False)

    def of_today(self, record):
        """A record as one of the stages of today: a stage that had another name by then has its own, and rows of a stage
        that is no more are apart, in `left`. A row whose parent is none of today's is compared with what its stage
        declares."""
        if not isinstance(record, records.Fields):
            return record
        known, kernels = self.called, record.get("kernels")
        if record.get("kind") == "verification":
            return records.Fields(record, **{what: self.named_today(record[what]) for what in ("stages", "errors", "kernels")})
        if not isinstance(kernels, dict) or "rows" not in record:
            return record
        self.take_over(record)
        for row in record.rows:
            if row.get("folder") in kernels.keys() & known.keys():
                row["shows_here"] = row.regime == known[row.folder].shows_in
        if all(name in known and known[name].folder == name for name in kernels):
            return record
        named = {row.stage: known.get(row.folder) for row in record.rows if row.get("folder") in kernels}
        record["left"] = [row for row in record.rows if row.get("folder") in kernels.keys() - known.keys()]
        record["rows"] = [row for row in record.rows if row.get("folder") not in kernels or row.folder in known]
        for row in record.rows:
            if row.get("folder") in kernels:
                stage, parent = known[row.folder], named.get(row.parent)
                row.update(stage=stage.number, folder=stage.folder, parent=parent.number if parent else stage.parent)
        record["kernels"] = records.Fields({known[name].folder: own for name, own in kernels.items() if name in known})
        return records.derive(record)

    def all_of(self, kind):
        """The recordings of this kind with the names of their files, the newest last."""
        found = [(path.name, self.record(path.stem, None)) for path in sorted(self.folder.glob("*.json"))]
        return sorted((each for each in found if each[1].get("kind") == kind), key=lambda each: each[1].date)

    @cached_property
    def timings(self):
        """All of them, the newest last."""
        return [results for _, results in self.all_of("timing")]

    @cached_property
    def by_gpu(self):
        """All timings by GPU, that of the pages first; the newest last."""
        found = {SHOWN_GPU: []}
        for results in self.timings:
            found.setdefault(results.hardware.gpu, []).append(results)
        return {gpu: recordings for gpu, recordings in found.items() if recordings}

    @cached_property
    def recorded(self):
        """The newest whole timing of the GPU that the pages speak of, if it has one. Another GPU's never replaces it."""
        return self.recorded_on(SHOWN_GPU)

    @cached_property
    def whole(self):
        """The timings that have, in every regime but the sweeps, those of gradients and those with a window, column
        bounds or documents, a stage whose change should show there; the newest last."""
        wanted = {name for name, regime in self.regimes.items()
                  if not regime["sweep"] and self.is_plain(name) and regime["pass"] == "forward"}
        return [results for results in self.timings if wanted <= {row.regime for row in results.rows if row.shows_here}]

    def recorded_on(self, gpu):
        """The newest whole timing of this GPU, or of any if this one has none."""
        return next(iter([results for results in self.whole[::-1] if results.hardware.gpu == gpu] + self.whole[::-1]), None)

    def anew(self, regime):
        """The newer timing of a regime of the whole ladder that is named after it, as in h200-backward; None if there is
        none."""
        whole = self.recorded
        if not whole or all(row.regime != regime for row in whole.rows):
            return None
        name = next((name for name, results in self.all_of("timing") if results is whole), "")
        results = self.record(f"{name.removesuffix('.json')}-{regime}")
        return results if results and results.date > whole.date else None

    def newest_of(self, stages):
        """The newest whole timing of these kernels as they are, of any GPU; None if there is none."""
        return next((results for results in self.whole[::-1] if all(stage.folder in results.kernels for stage in stages)
                     and not self.changed_since(results, stages)), None)

    def newest_with(self, stage):
        """The newest timing, whole or not, of this stage's kernel, where its change should show: as it is rather than as it
        was, and next to its parent, if that was timed; on the GPU that pages speak of. None if there is none."""
        found = [(any(row.shows_here for row in rows), not self.changed_since(results, [stage]),
                  any(row.over_parent for row in rows if row.shows_here), SHOWN_GPU in results.hardware.gpu, results)
                 for results in self.timings[::-1]
                 if (rows := [row for row in results.rows if row.stage == stage.number and row.timing])
                 and stage.folder in results.kernels]
        return max(found, key=lambda each: each[:-1], default=(None,))[-1]

    def timing_of(self, stage):
        """Where the table of a lesson is from: its part's recording, or a newer one of its kernel as it is; None if there
        is none."""
        results = self.recording_of(stage.number)
        if not results or stage.folder not in results.kernels or self.changed_since(results, [stage]):
            results = self.newest_with(stage) or results
        return results

    @property
    def profiles(self):
        """Those that there are."""
        return [*filter(None, (self.record(f"{name}-profile", "profile") for name in PROFILES))]

    @property
    def profiled(self):
        return self.profiles[0] if self.profiles else None

    def profile_of(self, stage):
        """The profile that shows a stage's change, of the GPU that the pages speak of if that does; None if none has it."""
        having = [(each, [row.regime for row in each.rows if row.stage == stage.number]) for each in self.profiles]
        found = [each for each, regimes in having if stage.shows_in in regimes] + [each for each, some in having if some]
        return next(iter(found), None)

    @property
    def profiled_rows(self):
        """Of each stage, those of the profile that has it."""
        profiles = {number: self.profile_of(stage) for number, stage in self.stages.items()}
        return [row for number, profile in profiles.items() if profile for row in profile.rows if row.stage == number]

    def changed_since(self, record, stages=None):
        """Those whose kernels are others now than those that a recording is of; of the stages that it has rows of unless
        they are given."""
        prints = record.get("kernels", {})
        if isinstance(prints, list):  # of a verification
            prints = {kernel.stage: kernel.fingerprint for kernel in prints}
        if stages is None:
            shown = {row.folder for row in record.get("rows", ()) if "folder" in row} if "rows" in record else prints
            stages = [stage for stage in self.stages.values() if stage.folder in shown]
        known = [stage for stage in stages if stage.folder in prints]
        return [stage for stage in known if prints[stage.folder] != stage.fingerprint]

    def label(self, record, stages=None):
        """Who made it, and what was changed_since()."""
        return records.label(record, self.changed_since(record, stages))

    def mark(self, *shown):
        """A line for numbers that have no label, of pairs of a recording and stages; empty if no kernel was changed."""
        changed = {f"{stage.number:02}" for record, stages in shown for stage in self.changed_since(record, stages)}
        return f"\nKernels changed since they were recorded: {', '.join(sorted(changed))}.\n" if changed else ""

    def with_parents(self, stages):
        """These, and those that they are compared with."""
        parents = [self.stages[stage.parent] for stage in stages if stage.parent in self.stages]
        return sorted({*stages, *parents}, key=lambda stage: stage.number)

    def recording_of(self, number):
        """Where the stages of a part were timed, all in one run: in the newest recording of all stages, unless one of
        them was changed afterwards and a newer whole one has them and their parents as they are. None if none of them
        was timed there."""
        own = self.of_part(self.stages[number].part)
        part = own + [self.stages[stage.parent] for stage in own if stage.parent >= 0]
        found = self.recorded
        if found and self.changed_since(found, part):
            newest = self.newest_of(part)
            found = newest if newest and newest.date > found.date else found
        return found if found and {row.stage for row in found.rows} & {stage.number for stage in own} else None
