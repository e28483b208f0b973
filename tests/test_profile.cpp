// lab profile without a GPU: an ncu made of a few lines of shell, profiles as files and as tables.

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/base/json.h"
#include "harness/features/features.h"
#include "harness/ladder/ladder.h"
#include "harness/report/profile_tables.h"
#include "harness/time/record_json.h"
#include "tests/catch.h"
#include "tests/folder.h"
#include "tests/skip.h"

using namespace ladder;
using ladder::test::Folder;
namespace fs = std::filesystem;

namespace {

KernelProfile kernel_profile(const std::string& name) {
    KernelProfile kernel;
    kernel.kernel = name;
    kernel.blocks = 4096;
    kernel.threads = 128;
    kernel.registers = 168;
    kernel.shared_bytes = 52224;
    kernel.blocks_per_sm = 3;
    kernel.warps_per_sm = 12;
    kernel.limited_by = "registers";
    return kernel;
}

// 03 with one kernel and 04 with one in train, 00 that does not fit, 06 with two in decode.
Profile sample_profile() {
    Profile profile;
    profile.date = "2026-11-22T07:52:00Z";
    profile.commit = "0123456789abcdef";
    profile.hardware = {"NVIDIA H200", 132, 90, 90, 90, "580.159.04", "13.0"};
    for (const int number : {0, 3, 4, 6}) {
        const Stage& stage = *find_stage(number);
        ProfileRow row = profile_row(profiled_case(DType::bf16, number == 6 ? "decode" : "train"), stage);
        if (number == 0) {
            row.why_not = "S needs 3.0 GiB";
        } else {
            row.kernels.push_back(kernel_profile("attention"));
        }
        if (number == 6) row.kernels.push_back(kernel_profile("merge"));
        profile.kernels[stage.folder()] = "0123456789abcdef";
        profile.rows.push_back(row);
    }
    return profile;
}

// Nsight Compute's raw page for it, with what else is in its output.
const char* const raw_page =
    R"csv(==PROF== Connected to process 42 (/work/build/lab)
==PROF== Profiling "attention": 0%....50%....100% - 9 passes
stage  kernel
==PROF== Disconnected from process 42
"ID","Process ID","Kernel Name","Block Size","gpu__time_duration.sum","sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed","dram__bytes_read.sum","smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio","smsp__average_warps_issue_stalled_selected_per_issue_active.ratio","smsp__average_warps_issue_stalled_wait_per_issue_active.ratio","l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
"","","","","ns","%","byte","inst","inst","inst",""
"0","42","void <unnamed>::attention<__nv_bfloat16, 128>(ladder::Problem)","(128, 1, 1)","3,278,016","11.25","201,326,592","6","1.00","3","0"
"1","42","void <unnamed>::attention<__nv_bfloat16, 128>(ladder::Problem)","(128, 1, 1)","1,041,000","34.5","201,326,592","1","1.00","2","n/a"
"2","42","attention","(128, 1, 1)","200,000","n/a","134,217,728","1","1","2","12"
"3","42","merge","(128, 1, 1)","4,000","0","1,000,000","(!) nan","","1e400","0"
)csv";

// Has a program of that body as ncu, which finds what it must write in $json and $metrics, and the folder in
// $here.
class FakeNcu {
  public:
    explicit FakeNcu(const std::string& body = "cat \"$here/raw.csv\"\n") {
        save_profile(sample_profile(), OutputFile(folder_ / "there.json"));
        folder_.write("raw.csv", raw_page);
        folder_.write("ncu",
                      "#!/bin/sh\nhere=" + (folder_ / "") +
                          "\nif [ \"$1\" = --version ]; then echo 'Version 2025.3.1.0 (build 1)'; exit; fi\n"
                          "while [ $# -gt 0 ]; do\n"
                          "    case $1 in --json) json=$2 ;; --metrics) metrics=$2 ;; esac\n"
                          "    shift\ndone\ncp \"$here/there.json\" \"$json\"\n" +
                          body);
        chmod((folder_ / "ncu").c_str(), 0755);
        setenv("PATH", ((folder_ / ":") + path_).c_str(), 1);
    }
    FakeNcu(const FakeNcu&) = delete;
    FakeNcu& operator=(const FakeNcu&) = delete;
    ~FakeNcu() { setenv("PATH", path_.c_str(), 1); }

  private:
    Folder folder_;
    std::string path_ = std::getenv("PATH");
};

template <class Error, class F>
std::string message(F f) {
    try {
        f();
    } catch (const Error& error) {
        CHECK(std::string(error.what()).find('\n') == std::string::npos);
        return error.what();
    } catch (const std::exception& error) {
        return std::string("another kind of error: ") + error.what();
    }
    return "no error";
}

bool contains(const std::string& text, const std::string& words) {
    INFO(text);
    return text.find(words) != text.npos;
}

// Has temporary files made in a folder of its own, where no other test leaves any.
class OwnTemporaryFiles {
  public:
    OwnTemporaryFiles() { setenv("TMPDIR", (folder_ / ".").c_str(), 1); }
    OwnTemporaryFiles(const OwnTemporaryFiles&) = delete;
    OwnTemporaryFiles& operator=(const OwnTemporaryFiles&) = delete;
    ~OwnTemporaryFiles() { unsetenv("TMPDIR"); }

    std::size_t leftovers() const { return folder_.files(); }

  private:
    Folder folder_;
};

}  // namespace

TEST_CASE("a kernel's name without its types", "[profile]") {
    for (const char* name :
         {"attention", "void <unnamed>::attention<__half, 64>(ladder::Problem)",
          "void (anonymous namespace)::attention<__nv_bfloat16, (int)128>(ladder::Problem)",
          "attention(ladder::Problem)", "void ladder::gpu::attention<ladder::Shared<int (*)(int)>>()"}) {
        CHECK(kernel_base_name(name) == "attention");
    }
    CHECK(kernel_base_name("").empty());
}

TEST_CASE("what limits the blocks of a multiprocessor", "[profile]") {
    const Multiprocessor h200{
        .threads = 2048, .blocks = 32, .shared_bytes = 233472, .reserved_shared_bytes = 1024};
    const auto limit = [&](int blocks, int without_shared, int threads, int shared_bytes) {
        KernelProfile kernel;
        kernel.threads = threads;
        kernel.shared_bytes = shared_bytes;
        kernel.blocks_per_sm = blocks;
        return limit_of(kernel, without_shared, h200);
    };
    CHECK(limit(3, 3, 128, 52224) == "registers");
    CHECK(limit(2, 3, 128, 87552) == "shared memory");
    CHECK(limit(3, 3, 128, 70000) == "registers, shared memory");
    CHECK(limit(2, 2, 1024, 0) == "threads");
    CHECK(limit(32, 32, 32, 0) == "blocks");
    CHECK(limit(16, 16, 128, 8192) == "threads");
}

TEST_CASE("each stage is profiled in train, and with its parent where it shows", "[profile]") {
    std::vector<const Stage*> all;
    for (const Stage& stage : stages()) all.push_back(&stage);
    const auto rows = telling_rows(all, DType::bf16);
    const auto has = [&](int stage, const std::string& regime) {
        return std::any_of(rows.begin(), rows.end(),
                           [&](const ProfileRow& row) { return row.stage == stage && row.regime == regime; });
    };
    for (const Stage& stage : stages()) {
        CHECK(has(stage.number, stage.pass == Pass::forward ? "train" : "backward"));
        CHECK(has(stage.number, stage.shows_in));
        const int d = profiled_case(DType::bf16, stage.shows_in).problem.shape.d;
        const Stage* parent = parent_at(stage, d);
        const bool takes_it =
            parent != nullptr && parent->pass == stage.pass &&
            why_not_taken(*parent, profiled_case(DType::bf16, stage.shows_in).problem).empty();
        if (takes_it) CHECK(has(parent->number, stage.shows_in));
    }
    CHECK_FALSE(has(0, "decode"));
    CHECK_FALSE(has(1, "long"));
    CHECK(profiled_case(DType::bf16, "decode").problem.shape.Nk == 64 << 10);
    CHECK(telling_rows({find_stage(3)}, DType::fp16).size() == 2);
}

TEST_CASE("a profile that is written and read is the same", "[profile]") {
    const Folder folder;
    Profile profile = sample_profile();
    profile.profiler = "Nsight Compute 2025.3.1";
    profile.rows[1].kernels[0].metrics = {{"tensor_pipe_pct", 34.5}};
    save_profile(profile, OutputFile(folder / "a.json"));
    save_profile(load_profile(folder / "a.json"), OutputFile(folder / "b.json"));
    CHECK(folder.read("a.json") == folder.read("b.json"));
    const auto json = nlohmann::json::parse(folder.read("a.json"));
    CHECK(json["kind"] == "profile");
    CHECK(json["rows"][1]["kernels"][0]["metrics"]["tensor_pipe_pct"] == 34.5);
    CHECK(json["rows"][1]["kernels"][0]["limited_by"] == "registers");

    profile.hardware.ptx_arch = 75;
    CHECK(contains(message<CannotRun>([&] { save_profile(profile, OutputFile(folder / "c.json")); }),
                   "is not written: the kernels run from PTX for compute_75"));
    CHECK(folder.files() == 2);
}

TEST_CASE("a file that is no profile", "[profile]") {
    const Folder folder;
    const auto error = [&](const std::string& text) {
        const std::string file = folder.write("bad.json", text);
        const std::string what = message<BadUsage>([&] { load_profile(file); });
        CHECK(contains(what, "cannot read " + file));
        return what;
    };
    auto json = nlohmann::json(sample_profile());
    CHECK(contains(error("{"), "parse error"));
    CHECK(contains(error("[]"), "not a profile"));
    CHECK(contains(error(R"({"kind": "timing"})"), "not a profile"));
    auto no_rows = json;
    no_rows.erase("rows");
    CHECK(contains(error(no_rows.dump()), "rows"));
    auto mistyped = json;
    mistyped["rows"][1]["kernels"][0]["registers"] = "many";
    CHECK(contains(error(mistyped.dump()), "must be number"));
    auto metric = json;
    metric["rows"][1]["kernels"][0]["metrics"]["tensor_pipe_pct"] = nullptr;
    CHECK(contains(error(metric.dump()), "must be number"));
    CHECK(contains(message<BadUsage>([&] { load_profile(folder / "none.json"); }), "cannot read"));
}

TEST_CASE("Nsight Compute's metrics come with the profile, or why there are none", "[profile]") {
    const OwnTemporaryFiles files;
    const std::vector<std::string> lab{"lab", "profile", "3-4"};
    {
        const FakeNcu ncu("cat \"$here/raw.csv\"\ncase $metrics in *stall*|*l2_*|*lts__*) exit 9 ;; esac\n");
        const Profile profile = profile_with_nsight(lab, 60, true);
        CHECK(total(profile.rows[3], "hbm_read_bytes") == 135217728);  // both kernels of 06
        CHECK_FALSE(total(profile.rows[3], "hbm_write_bytes"));
        CHECK_FALSE(total(profile.rows[0], "hbm_read_bytes"));
        const std::string table = to_markdown(bytes_table(profile));
        CHECK(contains(table,
                       "| decode: B=1 H=32 Hkv=8 Nq=1 Nk=65536 d=128 bf16 | **06_flash_decoding** | 2 | "
                       "129 MiB | n/a | |"));
        CHECK(contains(table, "| **00_naive** | 0 | n/a | n/a | S needs 3.0 GiB |"));
    }
    {
        const FakeNcu ncu("exit 5\n");
        CHECK(contains(message<CannotRun>([&] { profile_with_nsight(lab, 60); }), "exit code 5"));
    }
    {
        const FakeNcu ncu("echo '\"ID\",\"Kernel Name\"'; echo '\"0\",\"a\",\"b\"'\n");
        CHECK(
            contains(message<CheckFailed>([&] { profile_with_nsight(lab, 60); }), "3 cells under 2 titles"));
    }
    {
        const FakeNcu ncu("echo '{' > \"$json\"; cat \"$here/raw.csv\"\n");
        CHECK(contains(message<BadUsage>([&] { profile_with_nsight(lab, 60); }), "cannot read"));
    }
    CHECK(files.leftovers() == 0);
}

TEST_CASE("the tables of a profile", "[profile]") {
    const FakeNcu ncu;
    const Profile profile = profile_with_nsight({"lab"}, 60);
    CHECK(profile.profiler == "Nsight Compute 2025.3.1.0");
    CHECK(profile.rows[1].kernels[0].registers == 168);
    const auto tables = profile_tables(profile);
    REQUIRE(tables.size() == 2);
    const std::string train = to_markdown(tables[0]);
    CHECK(tables[0].title() == "train: B=8 H=16 Hkv=16 Nq=2048 Nk=2048 d=128 bf16");
    CHECK(contains(train, "| 00_naive | S needs 3.0 GiB |"));
    CHECK(contains(train, "| **04_split_q** | attention | 1.041 ms | n/a | 34.5% |"));
    CHECK(contains(train, "| barrier 60%, wait 30% |"));
    CHECK(contains(to_markdown(tables[1]), "| **06_flash_decoding** | merge | 0.004 ms |"));
    const std::string occupancy = to_markdown(occupancy_table(profile));
    CHECK(contains(occupancy, "| 06_flash_decoding | merge | 128 | 168 | 0 | 52,224 | 3 | 12 | registers |"));
}

TEST_CASE("recorded profiles are whole", "[profile]") {
    for (const auto& entry : fs::directory_iterator(results_folder())) {
        if (entry.path().extension() != ".json" || !is_record(read_json(entry.path()), "profile")) continue;
        INFO(entry.path().string());
        const Profile profile = load_profile(entry.path());
        CHECK(foreign_architecture(profile.hardware).empty());
        CHECK_FALSE(profile.profiler.empty());
        for (const ProfileRow& row : profile.rows) CHECK(profile.kernels.contains(row.folder));
    }
}

TEST_CASE("a GPU tells which kernels a stage launches", "[profile][gpu]") {
    if (!ladder::test::available(Backend::gpu)) return;
    const auto gpu = open_device(Backend::gpu);
    TimedCase decode{"custom", {}};
    decode.problem.shape = {.B = 1, .H = 2, .Hkv = 2, .Nq = 1, .Nk = 1024, .d = 64};
    const Profile profile =
        observe_stages(*gpu, {profile_row(decode, *find_stage(0)), profile_row(decode, *find_stage(6))});
    REQUIRE(profile.rows[0].kernels.size() == 3);
    REQUIRE(profile.rows[1].kernels.size() == 2);
    const KernelProfile& attention = profile.rows[1].kernels[0];
    CHECK(attention.threads == 128);
    CHECK(attention.registers > 32);
    CHECK(attention.blocks_per_sm > 0);
    CHECK(attention.warps_per_sm == 4 * attention.blocks_per_sm);
    CHECK_FALSE(attention.limited_by.empty());
}
