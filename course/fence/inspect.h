/// @file
/// Looks into compiled code that is not trusted.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ladder {

/// What a program of binutils says of an untrusted file, in the sandbox; the file's name comes
/// after the words of the command. Throws CannotRun if the program is not there, and CheckFailed if the file
/// makes it fail, take long or say more than it may.
std::string inspect(std::vector<std::string> command, const std::filesystem::path& file);

/// "kernel.cu:12": the line outside of the CUDA layer that an address in a library is of, or the address if
/// there is none.
std::string source_line(const std::filesystem::path& library, const std::string& address);

}  // namespace ladder
