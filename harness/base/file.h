/// @file
/// Files that appear whole or not at all, and folders that do not stay.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ladder {

/// A file to be written later. Checked when it is named, so that a typing error is reported before
/// the work and not after it.
class OutputFile {
  public:
    /// Throws BadUsage if the file cannot be created or replaced.
    explicit OutputFile(std::filesystem::path path);

    /// Writes all of the file and then moves it into place. Throws BadUsage and leaves nothing if that fails.
    void write(std::string_view content) const;

    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
};

/// A folder among the system's temporary ones, gone with its owner. A program that was killed leaves its own,
/// and the next one that makes one with the same prefix removes it.
class TemporaryFolder {
  public:
    /// Throws CannotRun if it cannot be created. Its name starts with `prefix`.
    explicit TemporaryFolder(const std::string& prefix);
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    ~TemporaryFolder();

    const std::filesystem::path& path() const { return path_; }

    /// From now on a signal that ends this program (SIGINT, SIGTERM, SIGHUP) takes the folders with it.
    static void remove_on_signals();

  private:
    std::filesystem::path path_;
    int lock_;  ///< held as long as it is in use
};

/// Throws BadUsage if anything but an empty folder is in its place: "FOLDER exists already" and the advice.
void require_new_folder(const std::filesystem::path& folder, std::string_view advice = "");

/// Makes Git ignore all that a folder holds, so that a checkout around it stays as it was committed.
void ignore_in_git(const std::filesystem::path& folder);

/// The whole file. Throws BadUsage if it cannot be read.
std::string read_file(const std::filesystem::path& path);

/// A hash of text, to notice a change and not an attack.
std::string text_fingerprint(std::string_view text);

/// The same of C++ source without its comments and white space: equal if the code is equal.
std::string code_fingerprint(const std::string& source);

}  // namespace ladder
