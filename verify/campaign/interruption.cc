#include "verify/campaign/interruption.h"

namespace shardproof {
namespace {

volatile sig_atomic_t seen = 0;

}  // namespace

Interruption::Interruption() {
  struct sigaction action {};
  action.sa_handler = [](int) { seen = 1; };
  ::sigaction(SIGTERM, &action, &old_term_);
  ::sigaction(SIGINT, &action, &old_int_);
}

Interruption::~Interruption() {
  ::sigaction(SIGTERM, &old_term_, nullptr);
  ::sigaction(SIGINT, &old_int_, nullptr);
}

bool Interruption::WasSeen() { return seen != 0; }

}  // namespace shardproof
