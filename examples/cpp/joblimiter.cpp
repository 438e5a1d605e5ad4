// joblimiter: limits how many jobs run at a time, among processes that know nothing of one another but a
// file's name.
//
//     joblimiter FILE SLOTS[,MEMORY] [--needs MEMORY] -- COMMAND [ARGUMENT...]
//     joblimiter FILE --remove
//
// At most SLOTS of those that name the same FILE run their commands at a time, and these need no more than
// MEMORY units (gigabytes, say) together; the others wait. A job takes its slot and its memory at once or not
// at all, so two jobs never wait for what the other has. However a job ends, by kill -9 too, what it held
// comes back; and its limit is one with that of jobs started by the example of the same name in C.
//
//     c++ -std=c++17 -O2 joblimiter.cpp $(pkg-config --cflags --libs poundlock) -o joblimiter

#include <poundlock.hpp>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <sys/ipc.h>
#include <unistd.h>

using poundlock::operation;
using poundlock::semaphore_set;

constexpr std::uint16_t slot = 0, memory = 1;

[[noreturn]] static void fail_as_system(const std::string& what) {
    throw std::system_error(errno, std::generic_category(), what);
}

// What processes agree on.
static int key_of(const char* file) {
    const int key = ftok(file, 'j');
    if (key == -1) fail_as_system(file);
    return key;
}

// A number that a semaphore can have.
static std::int16_t number(std::string_view text) {
    std::int16_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0)
        throw std::invalid_argument(std::string(text) + ": not a number from 0 to 32767");
    return value;
}

static void run(int argc, char** argv) {
    if (argc == 3 && argv[2] == std::string_view("--remove")) {
        semaphore_set::open(key_of(argv[1])).remove();
        return;
    }
    const bool says_needs = argc > 5 && argv[3] == std::string_view("--needs");
    const int dashes = says_needs ? 5 : 3;
    if (argc < dashes + 2 || argv[dashes] != std::string_view("--"))
        throw std::invalid_argument("FILE SLOTS[,MEMORY] [--needs MEMORY] -- COMMAND [ARGUMENT...], "
                                    "or FILE --remove");
    const std::string_view limits = argv[2];
    const auto comma = limits.find(',');
    const std::int16_t slots = number(limits.substr(0, comma));
    const std::int16_t units = comma == limits.npos ? std::int16_t(0) : number(limits.substr(comma + 1));
    const std::int16_t needs = says_needs ? number(argv[4]) : std::int16_t(0);
    if (needs > units) throw std::invalid_argument("no job of " + std::to_string(needs) + " units ever fits");

    const auto values = {static_cast<std::uint16_t>(slots), static_cast<std::uint16_t>(units)};
    semaphore_set set = semaphore_set::open_or_create(key_of(argv[1]), values);
    const operation one = operation::take(slot).undone_at_end();
    // To take 0 units would be to wait until there are none.
    if (needs == 0)
        set.operate({one});
    else
        set.operate({one, operation::take(memory, needs).undone_at_end()});
    // In this process's place, so that what is held is held by the job itself.
    char** const command = argv + dashes + 1;
    execvp(*command, command);
    fail_as_system(*command);
}

int main(int argc, char** argv) {
    try {
        run(argc, argv);
        return 0;
    } catch (const std::exception& error) {
        std::cerr << "joblimiter: " << error.what() << '\n';
        return 125;
    }
}
