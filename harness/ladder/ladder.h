/// @file
/// The stages: what their kernels declare, read from the sources. No kernel is compiled to list them.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "stages/stage.h"

namespace ladder {

/// The folder of sources that this program was built from, unless use_folders() named another. Throws
/// CannotRun if it is gone.
std::filesystem::path source_folder();

/// The folder with kernels.json, which says how kernels are compiled, and with the compiled kernels: the one
/// that this program was built in, unless use_folders() named another.
const std::filesystem::path& build_folder();

/// For a program that was installed elsewhere: where its sources are, and a folder that it may write to.
/// Before all else.
void use_folders(const std::filesystem::path& sources, const std::filesystem::path& build);

/// The folder of stages: stages/ of the sources, or the one that the environment variable LADDER_STAGES
/// names.
std::filesystem::path stages_folder();

/// A part of the ladder, which has a page: 10s_decoding.md in stages_folder(). The page's last line may say
/// what holds for the part: `<!-- part: at most 300 lines -->`, `<!-- part: experiments -->`.
struct Part {
    int first = 0;               ///< the number that names it
    std::filesystem::path page;  ///< the name of its file; empty where there is none
    std::string title;           ///< the heading of its page, "Decoding: 10 to 17"; "10s" where there is none
    int most_lines = 400;        ///< of a kernel
    /// Its stages try something out and are no rungs: no stage builds on one, no part ends with one, and none
    /// is an exercise.
    bool experiments = false;
};

/// The part that a stage is in: the one that it declares, or else the last one that begins at its number or
/// before it.
Part part_of(const Stage& stage);

/// The parts that have a page, in order.
const std::vector<Part>& parts();

/// By which stages are read: the part, the place in it, and the number.
std::array<int, 3> reading_order(const Stage& stage);

/// All stages in reading_order(): the folders with a kernel.cu. Throws CheckFailed if one declares none, or
/// two the same number.
const std::vector<Stage>& stages();

/// The stage with this number, or null.
const Stage* find_stage(int number);

/// The stage with this folder now or formerly, or null.
const Stage* stage_called(const std::string& folder);

/// What a stage is compared with at head dimension d: its parent, or the nearest stage above that has kernels
/// for d. Null if none has.
const Stage* parent_at(const Stage& stage, int d);

/// The stage whose folder this is; only the folder's name counts. Throws BadUsage if there is none.
const Stage& stage_in(const std::filesystem::path& folder);

/// Whether it is one of the seven stages that derive the algorithm, 00 to 06.
bool is_core(const Stage& stage);

/// Whether it is no rung of the ladder.
bool is_experiment(const Stage& stage);

/// Whether it gives the same bits each time where its parent does not. That is a rung off the ladder's
/// way: it may cost speed, so no call gets it without asking for it, and no part ends with it.
bool is_for_order(const Stage& stage, const std::vector<Stage>& ladder = stages());

/// Whether a request's results are the same bits whatever else is in the batch.
bool is_batch_invariant(const Stage& stage);

/// Whether it is where its part arrives, at one of its head dimensions: no stage of the part comes after it
/// there, but for those that exist for the order of sums. Never an experiment, nor a stage for several GPUs.
bool is_last_of_part(const Stage& stage);

/// These stages and what each is compared with at its head dimensions, as far as it exists; each once.
std::vector<const Stage*> with_parents(const std::vector<const Stage*>& stages);

/// The stage that a user's own folder (or kernel.cu in it) declares, under the name of the folder; or the
/// one in a library that was made of it, called "yours", whose outputs are held to the bounds of the ladder's
/// stage with its number, if there is one. It lives as long as the program. It is not among stages(), as its
/// number may be the ladder's, unless the folder itself is the ladder's. Throws BadUsage if there is no
/// kernel.
const Stage& own_stage(const std::filesystem::path& folder);

}  // namespace ladder
