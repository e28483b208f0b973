// NumPy files: what is read, and what is refused with which words.

#include <sys/resource.h>

#include <csignal>

#include "harness/base/file.h"
#include "harness/base/npy.h"
#include "stages/errors.h"
#include "tests/catch.h"
#include "tests/folder.h"

using namespace ladder;
using ladder::test::Folder;

namespace {

// A file with this header text, padded by nothing.
std::string npy(const std::string& header, std::size_t data_bytes, char version = 1) {
    std::string content = "\x93NUMPY";
    content +=
        {version, '\0', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
    if (version == 2) content += {'\0', '\0'};
    return content + header + std::string(data_bytes, '\0');
}

std::string dictionary(const std::string& descr, const std::string& order, const std::string& shape) {
    return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

// What parse_npy says against it.
std::string complaint(const std::string& content) {
    try {
        parse_npy(content, 4, "X.npy");
    } catch (const BadUsage& error) {
        return error.what();
    }
    return "none";
}

}  // namespace

TEST_CASE("npy: what is written reads back", "[npy]") {
    for (const auto type : {NpyArray::Type::float16, NpyArray::Type::float32}) {
        NpyArray array{type, {2, 1, 3, 8}, std::string(48 * element_size(type), '\0')};
        for (std::size_t i = 0; i < array.bytes.size(); ++i) array.bytes[i] = static_cast<char>(7 * i);
        const std::string content = format_npy(array);
        CHECK((content.size() - array.bytes.size()) % 64 == 0);  // as NumPy aligns it
        CHECK(content[content.size() - array.bytes.size() - 1] == '\n');
        const NpyArray back = parse_npy(content, 4, "X.npy");
        CHECK(back.type == array.type);
        CHECK(back.shape == array.shape);
        CHECK(back.bytes == array.bytes);
    }
}

TEST_CASE("npy: the header is Python, however it is spaced, quoted and ordered", "[npy]") {
    const std::string header = R"({ "shape" : (1,1,2,4) ,'fortran_order':False,'descr':"<f4" }  )";
    for (const char version : {1, 2}) {
        const NpyArray array = parse_npy(npy(header, 32, version), 4, "X.npy");
        CHECK(array.type == NpyArray::Type::float32);
        CHECK(array.shape == std::vector<std::int64_t>{1, 1, 2, 4});
    }
}

TEST_CASE("npy: every other file is refused, and the message says why", "[npy]") {
    const std::string shape = "(1, 1, 2, 4)";
    const std::string good = npy(dictionary("<f4", "False", shape), 32);
    REQUIRE(complaint(good) == "none");

    const std::vector<std::pair<std::string, std::string>> bad{
        {"", "not a .npy file"},
        {"hello, this is text", "not a .npy file"},
        {good.substr(0, 8), "truncated in its header"},
        {good.substr(0, 30), "truncated in its header"},
        {good.substr(0, good.size() - 1), "truncated: 31 bytes of data, its header promises 32"},
        {good + "x", "1 bytes beyond the data"},
        {npy(dictionary("<f4", "False", shape), 32, 3), ".npy version 3"},
        {npy(dictionary("<f8", "False", shape), 64), "its type is '<f8'; expected float16"},
        {npy(dictionary(">f4", "False", shape), 32), "big-endian"},
        {npy(dictionary("<f4", "True", shape), 32), "Fortran order"},
        {npy(dictionary("<f4", "False", "(2, 4)"), 32), "shape is (2, 4), of rank 2; expected rank 4"},
        {npy(dictionary("<f4", "False", "()"), 4), "of rank 0"},
        {npy(dictionary("<f4", "False", "(1, 0, 2, 4)"), 0), "every size must be at least 1"},
        {npy(dictionary("<f4", "False", "(1, -1, 2, 4)"), 0), "every size must be at least 1"},
        {npy(dictionary("<f4", "False", "(4294967296, 4294967296, 4294967296, 1)"), 0), "too large"},
        {npy(dictionary("<f4", "False", "(99999999999999999999, 1, 1, 1)"), 0), "too large"},
        {npy(dictionary("<f4", "Maybe", shape), 32), "malformed"},
        {npy("{'descr': '<f4', 'shape': (1, 1, 2, 4), }\n", 32), "malformed"},
        {npy("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (8,), }\n", 32), "structured"},
        {npy(dictionary("<f4", "False", shape) + "}", 32), "malformed"},
        {npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 2, 4), }", 32),
         "unexpected key 'descr'"},
        {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 2, 4), 'more': 1}", 32),
         "unexpected key 'more'"},
    };
    for (const auto& [content, why] : bad) {
        CAPTURE(why);
        const std::string said = complaint(content);
        CAPTURE(said);
        CHECK(said.find("X.npy: ") == 0);
        CHECK(said.find(why) != std::string::npos);
    }
}

TEST_CASE("npy: no prefix and no damaged byte of a header crashes the reader", "[npy]") {
    const std::string good = npy(dictionary("<f2", "False", "(1, 1, 2, 4)"), 16);
    for (std::size_t size = 0; size < good.size(); ++size) CHECK(complaint(good.substr(0, size)) != "none");
    for (std::size_t i = 0; i < good.size() - 16; ++i) {
        for (const char c : {'\0', '\xff', '(', '}', '9', ' '}) {
            std::string damaged = good;
            damaged[i] = c;
            complaint(damaged);  // refused or read, but never past the end: the sanitizers watch
        }
    }
}

TEST_CASE("output files appear whole or not at all", "[file]") {
    const Folder folder;
    OutputFile(folder / "a").write("first");
    CHECK(folder.read("a") == "first");
    OutputFile(folder / "a").write("second");
    CHECK(folder.read("a") == "second");
    CHECK(folder.files() == 1);

    CHECK_THROWS_AS(OutputFile(folder / "missing/a"), BadUsage);
    CHECK_THROWS_AS(OutputFile(folder / ""), BadUsage);
    std::filesystem::create_directory(folder / "b");
    CHECK_THROWS_AS(OutputFile(folder / "b"), BadUsage);
    CHECK(folder.files() == 2);

    // A full disk, as the kernel plays it: the write fails, and nothing is left beside the special file.
    if (std::filesystem::exists("/dev/full")) CHECK_THROWS_AS(OutputFile("/dev/full").write("x"), BadUsage);

    // The folder disappears between the check and the write.
    const OutputFile late(folder / "b/late");
    std::filesystem::remove(folder / "b");
    CHECK_THROWS_AS(late.write("x"), BadUsage);
    CHECK(folder.files() == 1);
}

TEST_CASE("an output file that does not fit leaves the old one, and nothing beside it", "[file]") {
    const Folder folder;
    folder.write("a", "old");
    const OutputFile file(folder / "a");
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit small{16, limit.rlim_max};
    const auto previous = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    bool refused = false;
    try {
        file.write(std::string(1000, 'x'));
    } catch (const BadUsage&) {
        refused = true;
    }
    setrlimit(RLIMIT_FSIZE, &limit);  // before Catch writes anything
    std::signal(SIGXFSZ, previous);
    CHECK(refused);
    CHECK(folder.read("a") == "old");
    CHECK(folder.files() == 1);
}

TEST_CASE("an output file that is a link replaces what the link names", "[file]") {
    const Folder folder;
    folder.write("target", "old");
    std::filesystem::create_symlink("target", folder / "link");
    OutputFile(folder / "link").write("new");
    CHECK(folder.read("target") == "new");
    CHECK(std::filesystem::is_symlink(folder / "link"));
}
