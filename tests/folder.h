/// @file
/// A folder that is gone when the test ends.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "harness/base/file.h"

namespace ladder::test {

class Folder {
  public:
    std::string operator/(const std::string& name) const { return (folder_.path() / name).string(); }

    /// Writes a file and returns its path.
    std::string write(const std::string& name, const std::string& content) const {
        std::ofstream(*this / name, std::ios::binary) << content;
        return *this / name;
    }
    std::string read(const std::string& name) const {
        std::ifstream file(*this / name, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    std::size_t files() const {
        return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_.path()),
                                                      std::filesystem::directory_iterator()));
    }

  private:
    TemporaryFolder folder_{"ladder-"};
};

}  // namespace ladder::test
