// The last words of a rank when its launcher ends all: Open MPI's mpirun hands on no line from then
// on, and has exit code 1 for it.
#pragma once

#include <string>

namespace tcpx {

// Writes within a second, or not at all: whoever has the other end may not read.
void say(const std::string& line, int descriptor = 2);

// Where an mpirun that is our parent has its own errors; false where it was not, or may not stay
// there: if that is a file that was not opened for appending, mpirun writes at a place of its own,
// which only the very same open file moves. `shares`: try to have that. The kernel may refuse it,
// as Yama does for a parent.
bool say_to_mpirun(const std::string& line, bool shares = true);

}  // namespace tcpx
