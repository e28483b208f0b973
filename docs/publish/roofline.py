"""The roofline: how many operations a stage does for each byte of HBM, and how fast it does them."""

from blocks import NOT_RECORDED, block, pictures
from markdown import in_words, rounded
from pictures import Picture, centered
from profiles import hbm_bytes
from records import by_problem, counts_bytes, key_of, telling_problem
from sources import SHOWN_GPU


def points(sources, results, profile):
    """The stages of the algorithm and the last of each part, on one problem of long queries, one of decoding, and
    those of gradients. A stage that was not timed or not profiled on the problem is left out."""
    problems = by_problem(results)
    shown = [telling_problem(problems, "train"), telling_problem(problems, "decode"),
             *(p for p in problems if sources.regimes.get(p.first.regime, {}).get("pass") == "backward")]
    profiled = {(row.folder, key_of(row)): hbm_bytes(row) for row in profile.rows}
    found = []
    for problem in filter(None, shown):
        for row in problem.rows:
            stage = sources.stages.get(row.stage)
            moved = profiled.get((row.folder, key_of(row)))
            if not stage or not moved or not row.timing or not (stage.part == 0 or stage.last_of_part):
                continue
            one_query = counts_bytes(row)
            if sources.decodes(stage.shows_in) != one_query and not (stage.part == 0 and one_query):
                continue
            found.append({"stage": row.folder, "problem": problem.short_name, "intensity": row.flops / moved,
                          "tflops": row.flops / row.timing.median_ms * 1e-9})
    return found


def picture_of(machine, tflops, gbs, shown):
    words = "".join(f" {in_words(p['stage'])} ({p['problem']}): {p['intensity']:.0f} operations per byte, "
                    f"{rounded(p['tflops'], 10)} TFLOP/s;" for p in shown)
    words = f"Roofline of {machine}: {gbs:.0f} GB/s of a copy, {tflops:.0f} TFLOP/s of a GEMM.{words}"
    return Picture({"name": "roofline", "title": "Roofline", "machine": machine, "tflops": tflops, "gbs": gbs,
                    "points": shown}, words[:-1] + ".", 480)


@pictures
def roofline(sources):
    found = shown_in(sources)
    return [found[0]] if found else []


def shown_in(sources):
    """The picture of the profile that has most such stages, of the GPU that the pages speak of if one has any, on a GPU
    whose ceilings are known; that profile and the timings; None if there is none."""
    found = []
    for profile in sources.profiles:
        results = sources.recorded_on(profile.hardware.gpu)
        if not results or None in (results.ceilings.bf16_tflops, results.ceilings.copy_gbs):
            continue
        if shown := points(sources, results, profile):
            found.append((SHOWN_GPU in results.hardware.gpu, len(shown), profile.date, shown, profile, results))
    if not found:
        return None
    *_, shown, profile, results = max(found, key=lambda each: each[:3])
    ceilings = results.ceilings
    return picture_of(results.hardware.gpu, ceilings.bf16_tflops, ceilings.copy_gbs, shown), profile, results


@block("roofline")
def roofline_block(sources, page, _):
    if page.stage:
        return None
    if not (found := shown_in(sources)):
        return NOT_RECORDED
    picture, *recordings = found
    folders = {point["stage"] for point in picture.data["points"]}
    stages = [stage for stage in sources.stages.values() if stage.folder in folders]
    return centered([picture], page) + sources.mark(*((recording, stages) for recording in recordings))
