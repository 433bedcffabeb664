# frozen_string_literal: true

require_relative "../test_helper"
require "io/wait"
require "pty"

# The command `mem` in IRB, typed at a terminal.
class ConsoleTest < MemscopeTest
  IRB = "require 'irb'; require 'memscope/irb'; IRB.start"
  RAILS = <<~RUBY
    require "rails"
    require "memscope"
    class Application < Rails::Application
      config.eager_load = false
      config.logger = Logger.new(nil)
    end
    Application.initialize!
    require "rails/command"
    require "rails/commands/console/console_command"
    Rails::Console.start(Application)
  RUBY
  TERMINAL = { "TERM" => "dumb", "COLUMNS" => "100", "IRBRC" => "/dev/null", "RAILS_ENV" => "development",
               "BUNDLE_GEMFILE" => "#{ChildProcess::ROOT}/Gemfile" }.freeze
  PROMPT = /^\S*[>*] \z/

  def setup
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    skip_under_sanitizer
  end

  # @return [Array<String>] what is printed for each line
  def typed(script, *lines)
    output, input, pid = PTY.spawn(ChildProcess.environment(nil, TERMINAL), *ChildProcess.ruby(gems: true),
                                   "-rbundler/setup", "-e", script, "--", "--simple-prompt", "--nomultiline")
    answer(output)
    lines.map { |line| input.puts(line) || answer(output) }
  ensure
    Process.kill(:KILL, pid)
    Process.wait(pid)
  end

  # Up to the next prompt.
  def answer(output)
    text = "".b
    until text.match?(PROMPT)
      raise ChildProcess::Failure, text unless output.wait_readable(ChildProcess::PATIENCE)

      text << output.readpartial(1 << 16).delete("\r")
    end
    text.force_encoding(Encoding::UTF_8)
  rescue Errno::EIO
    raise ChildProcess::Failure, "it has ended: #{text}"
  end

  def test_this_process_is_asked
    _, report, heap, census = typed(IRB, "class Order; end; ALL = Array.new(1000) { Order.new }; nil", "mem",
                                    "mem heap Order", "mem census --top 1")

    assert_match(/^ +[\d.]+  100\.0 %  = RSS of this reading, to the byte$/, report)
    assert_match(/^ +39\.1  ALL → Array → Order \(1,000 alike\)$/, heap)
    assert_match(/^ +\d[\d,]* .*$/, census)
    refute_match(/this is the memscope process itself/, report + heap + census)
  end

  def test_an_expression_is_measured_in_its_scope
    _, measured, kept = typed(IRB, "number = 1000; nil", "mem measure KEPT = Array.new(number) { Object.new }",
                              "KEPT.size")

    assert_match(/^ +40,000 +1,000 +40,000 +1,000  Object$/, measured)
    assert_includes kept, "=> 1000"
  end

  def test_what_is_wrong_is_said_and_the_console_goes_on
    exec, option, quote, rest = typed(IRB, "mem exec -- ls", "mem heap --nope", "mem 'report", "6 * 7")
    allowed = "report, doctor, census, heap, dump, watch, tags, purge, measure EXPRESSION"

    assert_includes exec, "mem: unknown command: exec; allowed: #{allowed}"
    assert_match(/^mem: invalid option: --nope/, option)
    assert_match(/^mem: Unmatched quote/, quote)
    assert_includes rest, "=> 42"
  end

  def test_the_console_of_rails_has_it
    report, help = typed(RAILS, "mem", "help mem")

    assert_match(/= RSS of this reading, to the byte$/, report)
    assert_match(/^mem heap Order +what retains the instances of Order$/, help)
  end
end
