#include "verify/cli/common/help.h"

#include <fmt/format.h>

#include "src/text/printable.h"

namespace shardproof {
namespace {

constexpr size_t kColumn = 26;  // where descriptions begin
constexpr int kWidth = 100;

class Help : public CLI::Formatter {
 public:
  Help() { column_width(kColumn); }

  /// One empty line between groups, where CLI11 puts two.
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    const bool is_first = is_positional || group == "Options";
    const std::string text =
        CLI::Formatter::make_group(std::move(group), is_positional, std::move(options));
    return is_first ? text : text.substr(1);
  }

  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return Row(make_option_name(option, is_positional) + make_option_opts(option),
               make_option_desc(option));
  }

  std::string make_subcommand(const CLI::App* command) const override {
    return Row(command->get_name(), command->get_description());
  }

  /// The word for the value, without what is allowed of it: that is told when it is not met.
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0 || option->get_positional()) return "";
    const std::string type = option->get_type_name();
    return " " + type.substr(0, type.find(':'));
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string shown = option->get_default_str();
    return option->get_description() + (shown.empty() ? "" : " (default " + shown + ")");
  }

 private:
  static std::string Row(const std::string& name, const std::string& description) {
    std::string line = fmt::format("  {:<{}}", name, kColumn - 2);
    if (name.size() + 3 > kColumn) line = "  " + name + "\n" + std::string(kColumn, ' ');
    const std::string wrapped =
        Wrapped(std::string(kColumn, ' ') + description, kWidth, static_cast<int>(kColumn));
    return line + wrapped.substr(kColumn) + "\n";
  }
};

void Use(const std::shared_ptr<Help>& help, CLI::App& app) {
  app.formatter(help);
  for (CLI::App* command : app.get_subcommands({})) Use(help, *command);
}

}  // namespace

void UseHelp(CLI::App& app) { Use(std::make_shared<Help>(), app); }

}  // namespace shardproof
