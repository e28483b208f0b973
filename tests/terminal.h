/// @file
/// A terminal of so many columns, and what was written to it.
#pragma once

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "tests/catch.h"

namespace ladder::test {

class Terminal {
  public:
    explicit Terminal(unsigned short columns) : master_(posix_openpt(O_RDWR | O_NOCTTY)) {
        REQUIRE((master_ >= 0 && grantpt(master_) == 0 && unlockpt(master_) == 0));
        path_ = ptsname(master_);
        slave_ = open(path_.c_str(), O_RDWR | O_NOCTTY);
        const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
        REQUIRE(ioctl(slave_, TIOCSWINSZ, &size) == 0);
        // It has room for some lines only; whoever writes more waits for a reader.
        reader_ = std::thread([this] {
            char bytes[4096];
            for (ssize_t n; (n = read(master_, bytes, sizeof bytes)) > 0;)
                said_.append(bytes, static_cast<std::size_t>(n));
            for (std::size_t end; (end = said_.find("\r\n")) != said_.npos;) said_.erase(end, 1);
        });
    }
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;
    ~Terminal() {
        said();
        close(master_);
    }

    /// "/dev/pts/3"
    const std::string& path() const { return path_; }

    /// All that was written, with '\n' at the end of lines. Nothing can be written any more.
    const std::string& said() {
        if (slave_ >= 0) close(slave_);
        slave_ = -1;
        if (reader_.joinable()) reader_.join();
        return said_;
    }

  private:
    int master_, slave_ = -1;
    std::string path_, said_;
    std::thread reader_;
};

}  // namespace ladder::test
