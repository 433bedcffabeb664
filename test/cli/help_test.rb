# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/command_line"

# The texts of help, and what the commands' classes know of the same options.
class HelpTest < MemscopeTest
  include CommandLine

  DIRECTORY = File.expand_path("../../lib/memscope/cli/help", __dir__)
  COMMANDS = Memscope::CLI::COMMANDS

  def test_each_command_has_a_text
    names = Dir.children(DIRECTORY).map { |name| name.delete_suffix(".txt") }

    assert_equal [*COMMANDS, "overview", "shared"].sort, names.sort
    COMMANDS.each do |name|
      help = help(name)
      longest = help.lines.grep_v(/^ {5}/).max_by(&:length)

      assert_operator longest.chomp.length, :<=, 80, "#{name}: #{longest}"
      assert_match(/\Ausage: memscope #{name} \[options\].*\n\n[A-Z].*\.\n\n/, help, name)
    end
  end

  def test_the_overview_has_the_first_sentences
    assert_equal "list Ruby processes, and show which of them listen", Memscope::CLI::Help.summary("ps")
    COMMANDS.each { |name| assert_includes printed_by("--help"), "  #{Memscope::CLI::Help.summary(name)}\n" }
  end

  def test_a_line_stands_for_the_whole_item
    assert_includes Memscope::CLI::Help.items("doctor"), <<-TEXT.chomp
        --gc                         collect garbage first, so that
                                     garbage does not count as in use
    TEXT
    assert_match(/--gc +for --dry-run: collect garbage first\n/, help("purge"))
    shared = File.read("#{DIRECTORY}/shared.txt").split("\n\n")
    used = COMMANDS.flat_map { |name| Memscope::CLI::Help.items(name) }.tally

    shared.each { |item| assert_operator used[item.chomp].to_i, :>, 1, item }
  end

  # A class may name only options that the text has.
  def test_options_of_a_class_are_in_the_text
    COMMANDS.each do |name|
      declared = declaration(name)
      named = [declared.limits.keys, declared.defaults.keys, declared.program, declared.process, declared.exclusive]

      assert_empty named.flatten - options(name).keys, name
    end
  end

  def test_all_allowed_names_are_in_the_text
    lists = COMMANDS.flat_map do |name|
      declaration(name).limits.map { |option, limit| [limit.type, options(name)[option]] }
    end
    lists = lists.select { |type, _text| type.is_a?(Hash) }

    assert_operator lists.size, :>=, 5
    lists.each { |type, text| assert_empty type.keys - text.scan(/\w+/), text }
    purge = help("purge")

    assert_includes purge, "in this order:\n#{Memscope::Purge::LEVERS.join(', ')}."
    assert_includes purge.tr("\n", " "), "stop Ruby for at most #{Memscope::Purge::MAX_PAUSE_MS} ms"
  end

  private

  def help(name) = printed_by(name, "--help")

  def declaration(name) = Memscope::CLI.const_get("#{name.capitalize}Command").declaration

  # The lines of each option.
  def options(name)
    Memscope::CLI::Help.items(name).grep(/\A +-/).to_h { |item| [item[/--([\w-]+)/, 1].tr("-", "_").to_sym, item] }
  end
end
