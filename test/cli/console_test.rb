# frozen_string_literal: true

require_relative "../test_helper"
require "io/wait"
require "pty"
require "tmpdir"

# The command `mem` in IRB, typed at a terminal. `rake battery:console` also types it in the console of an application
# as Rails 8 generates it, with another Ruby.
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
  PLAIN = %w[--simple-prompt --nomultiline].freeze
  PROMPT = /^\S*[>*] \z/
  # The prefix of another Ruby, and the directory of its gems.
  OTHER = %w[MEMSCOPE_CONSOLE_RUBY MEMSCOPE_CONSOLE_GEMS].map { |name| ENV.fetch(name, nil) }.freeze
  GEMFILE = <<~RUBY.freeze
    source Gem.sources.first.uri.to_s
    gem "rails"
    gem "puma"
    gem "irb"
    gem "memscope", path: #{ChildProcess::ROOT.dump}
  RUBY

  def setup
    skip ChildProcess::WITHOUT_BUNDLE if ChildProcess::WITHOUT_BUNDLE
    skip_under_sanitizer
  end

  # @return [Array<String>] what is printed for each line
  def typed(script, *lines)
    typed_into([*ChildProcess.ruby(gems: true), "-rbundler/setup", "-e", script], lines)
  end

  def typed_into(command, lines, env = TERMINAL)
    output, input, pid = PTY.spawn(ChildProcess.environment(nil, env), *command, "--", *PLAIN)
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
    _, measured, kept = typed(IRB, "number = 1000; nil", "mem measure kept = Array.new(number) { Object.new } # all",
                              "kept.size")

    assert_match(/^ +40,000 +1,000 +40,000 +1,000  Object$/, measured)
    assert_match(/  \(mem\):1$/, measured)
    refute_match(/\.rb:\d+$/, measured)
    assert_includes kept, "=> 1000"
  end

  def test_help_and_measure_alone
    help, measure = typed(IRB, "mem --help", "mem measure")

    assert_match(/^mem measure EXPRESSION +what the expression allocates/, help)
    assert_includes measure, "mem: measure needs an expression: mem measure EXPRESSION"
  end

  def test_what_is_wrong_is_said_and_the_console_goes_on
    exec, option, quote, rest = typed(IRB, "mem exec -- ls", "mem heap --nope", "mem 'report", "6 * 7")
    allowed = "report, doctor, census, heap, dump, watch, tags, purge, measure EXPRESSION"

    assert_includes exec, "mem: unknown command: exec; allowed: #{allowed}"
    assert_match(/^mem: invalid option: --nope/, option)
    assert_match(/^mem: Unmatched quote/, quote)
    assert_includes rest, "=> 42"
  end

  def test_no_program_replaces_the_console
    report, rest = typed(IRB, "mem report -- ls", "6 * 7")

    assert_includes report, "mem: -- COMMAND would replace this console: run memscope in a shell"
    assert_includes rest, "=> 42"
  end

  def test_the_console_of_rails_has_it
    report, help = typed(RAILS, "mem", "help mem")

    assert_match(/= RSS of this reading, to the byte$/, report)
    assert_match(/^mem heap Order +what retains the instances of Order$/, help)
  end

  # @yieldparam rails [Array<String>] the command bin/rails
  # @yieldparam env [Hash{String => String}]
  def generated
    ruby, gems = OTHER
    env = { **TERMINAL, "GEM_HOME" => gems, "GEM_PATH" => gems, "BUNDLE_GEMFILE" => nil,
                        "RUBYLIB" => File.join(ChildProcess::ROOT, "tmp", File.basename(ruby)) }
    Dir.mktmpdir do |directory|
      shell("#{ruby}/bin/ruby", "#{gems}/bin/rails", "new", "shop", "--minimal", "--skip-bundle", "--skip-git",
            "--skip-active-record", "--skip-asset-pipeline", env: env, chdir: directory)
      application = File.join(directory, "shop")
      File.write(File.join(application, "Gemfile"), GEMFILE)
      shell("#{ruby}/bin/bundle", "install", "--local", env: env, chdir: application)
      yield ["#{ruby}/bin/ruby", "#{application}/bin/rails"], env
    end
  end

  def shell(*command, **options)
    ran = ChildProcess.run_command(*command, **options)

    assert_predicate ran, :success?, ran
  end

  # As a person sets it up: memscope is in the Gemfile, and nothing else.
  def test_the_console_of_a_generated_application
    skip "rake battery:console installs another Rails" unless OTHER.all?
    lines = ["class Order; end; ALL = Array.new(1000) { Order.new }; Rails.version", "mem", "mem heap Order",
             "mem measure KEPT = Array.new(1000) { Object.new }"]
    version, report, heap, measured = generated { |rails, env| typed_into([*rails, "console"], lines, env) }

    assert_match(/=> "8\./, version)
    assert_match(/^ +[\d.]+  100\.0 %  = RSS of this reading, to the byte$/, report)
    assert_match(/^ +39\.1  ALL → Array → Order \(1,000 alike\)$/, heap)
    assert_match(/^ +40,000 +1,000 +40,000 +1,000  Object$/, measured)
  end
end
