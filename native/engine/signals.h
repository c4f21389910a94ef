// Signals as flags: the handler sets one, loops read it, Python is not involved.
#pragma once

namespace tcpx {

// SIGINT and SIGTERM ask the running batch to stop; SIGUSR1 asks for a report of where it stands.
// `on_stop` is called in the handler of the first two.
void install_signal_handlers(void (*on_stop)(int number) = nullptr);
void restore_signal_handlers();

int stop_signal();           // the signal that asked us to stop, or 0
int stop_sender();           // the process that sent it
bool take_report_request();  // true once a SIGUSR1
bool report_requested();     // without taking it

}  // namespace tcpx
