# frozen_string_literal: true

require_relative "../test_helper"
require_relative "../support/planned_settings"

# The configuration is settled once per process, so such tests run in child processes; pure functions are tested here.
class ConfigurationTest < MemscopeTest
  include PlannedSettings

  SETTINGS = Memscope::Configuration::SETTINGS

  # Runs the script in a child, and returns what it evaluates to.
  def child(script, **options)
    child_json("puts JSON.generate(begin\n#{script}\nend)", requires: %w[json logger], **options)
  end

  # The same for a script that should raise; returns the error's class and message.
  def refused(script, **options)
    child("begin; #{script}; nil; rescue StandardError => e; [e.class.name, e.message]; end", **options)
  end

  def test_the_defaults
    found = child(<<~RUBY)
      Memscope::Configuration::SETTINGS.keys.to_h { |name| [name, Memscope.configuration.public_send(name)] }
    RUBY

    assert_equal JSON.parse(JSON.generate(DEFAULTS)), found
  end

  def test_configure
    found = child(<<~RUBY)
      returned = Memscope.configure { |c| c.listen = "/a"; c.metrics_arenas = true }
      Memscope.configure { |c| c.listen = c.metrics_arenas && true }
      c = Memscope.configuration
      [returned, c.listen, c.metrics_arenas, c.actions, c.frozen?, c.equal?(Memscope.configuration)]
    RUBY

    assert_equal [nil, true, true, true, true, true], found
  end

  def test_code_goes_before_the_environment_and_that_before_the_default
    variables = { "MEMSCOPE_LISTEN" => "1", "MEMSCOPE_WORKER_INTERVAL" => "30", "MEMSCOPE_PASSWORD" => "secret" }
    found = child(<<~RUBY, env: variables)
      seen = nil
      Memscope.configure { |c| seen = c.listen; c.listen = false; c.password = nil }
      c = Memscope.configuration
      [seen, c.listen, c.worker_interval_seconds, c.password, c.metrics_arenas]
    RUBY

    assert_equal [true, false, 30, nil, false], found
  end

  def test_what_is_configured_is_not_changed_from_outside
    found = child(<<~RUBY)
      word = +"secret"
      builder = nil
      Memscope.configure { |c| c.password = word; builder = c }
      word << "!"
      kept = begin; builder.listen = true; rescue FrozenError => e; e.class.name; end
      [Memscope.configuration.password, kept, Memscope.configuration.listen]
    RUBY

    assert_equal ["secret", "FrozenError", false], found
  end

  def test_a_block_that_raises_changes_nothing
    found = child(<<~RUBY)
      begin
        Memscope.configure { |c| c.listen = true; c.actions = 1 }
      rescue ArgumentError
      end
      Memscope.configuration.listen
    RUBY

    refute found
  end

  def test_an_unknown_setting
    %w[c.lisen=true c.lisen c.system="id"].each do |line|
      message = "Memscope.configure: given the setting #{line[/c\.(\w+)/, 1]}, allowed: #{DEFAULTS.keys.join(', ')}"

      assert_equal ["Memscope::Invalid", message], refused("Memscope.configure { |c| #{line} }")
    end
  end

  def test_without_a_block
    assert_equal ["ArgumentError", "Memscope.configure: given no block, allowed: { |c| … }"],
                 refused("Memscope.configure")
  end

  def test_late
    name, message = refused("Memscope.configuration\nMemscope.configure { |c| c.listen = true }")

    assert_equal "Memscope::Configuration::Late", name
    assert_match(/\AMemscope\.configure: too late, the configuration is in use since -e:\d+:in .+; allowed: before/,
                 message)
  end

  # The message names the caller of the part of memscope that used the configuration.
  def test_late_because_of_a_surface
    _name, message = refused(<<~RUBY)
      eval("def surface = Memscope.configuration", binding,
           #{File.join(ChildProcess::ROOT, 'lib/memscope/surface.rb').inspect}, 7)
      surface
      Memscope.configure { |c| c.listen = true }
    RUBY

    assert_match(/since -e:\d+:in /, message)
  end

  def test_used_while_it_is_configured
    name, = refused("Memscope.configure { |c| Memscope.configuration; c.listen = true }")

    assert_equal "Memscope::Configuration::Late", name
  end

  def test_looking_at_it_so_far_settles_nothing
    found = child(<<~RUBY)
      before = Memscope::Configuration.so_far.listen
      Memscope.configure { |c| c.listen = true }
      [before, Memscope::Configuration.so_far.listen, Memscope.configuration.equal?(Memscope::Configuration.so_far)]
    RUBY

    assert_equal [false, true, true], found
  end

  # A server that forks before it loads the application has already used the configuration in the parent.
  def test_a_forked_child_can_be_configured_until_it_uses_it
    found = child(<<~RUBY)
      Memscope.configure { |c| c.listen = true }
      Memscope.configuration
      from, to = IO.pipe
      fork do
        Memscope.configure { |c| c.actions = false }
        c = Memscope.configuration
        late = begin; Memscope.configure { |_| }; rescue Memscope::Configuration::Late; true; end
        to.write(JSON.generate([c.listen, c.actions, late]))
      end
      Process.wait
      to.close
      [JSON.parse(from.read), Memscope.configuration.actions]
    RUBY

    assert_equal [[true, false, true], true], found
  end

  def test_threads_see_the_same
    found = child("Array.new(50) { Thread.new { Memscope.configuration } }.map(&:value).uniq(&:object_id).size")

    assert_equal 1, found
  end

  def test_a_wrong_variable_is_an_error_where_it_is_used
    wrong = { "MEMSCOPE_ACTIONS" => "of", "MEMSCOPE_WORKER_INTERVAL" => "0" }
    expected = ["Memscope::Invalid", 'MEMSCOPE_ACTIONS: given "of", allowed: 1, true, on, yes, 0, false, off, no']

    assert_equal expected, refused("Memscope.configuration", env: wrong)
    assert_equal expected, refused("Memscope.configure { |c| c.worker_interval_seconds = 5 }", env: wrong)
  end

  def test_wrong_variables_that_are_excused
    variables = { "MEMSCOPE_WORKER_INTERVAL" => "soon", "MEMSCOPE_METRICS_ARENAS" => "1", "MEMSCOPE_ACTIONS" => "of",
                  "MEMSCOPE_USERNAME" => "a:b" }
    found = child(<<~RUBY, env: variables)
      Memscope::Configuration.excuse_environment
      c = Memscope.configuration
      [c.worker_interval_seconds, c.metrics_arenas, c.actions, c.username, c.password,
       Memscope::Configuration.environment_errors]
    RUBY
    errors = found.pop

    assert_equal [10, true, false, "", nil], found
    assert_equal %w[username actions worker_interval_seconds], errors.keys
    assert_equal "MEMSCOPE_WORKER_INTERVAL: given \"soon\", allowed: a number of seconds from 1 to 3600",
                 errors.fetch("worker_interval_seconds")
  end

  def test_secrets_are_not_shown
    found = child(<<~RUBY)
      shown = nil
      Memscope.configure { |c| c.username = "memory"; c.password = "hunter2"; shown = [c.inspect, c.to_s] }
      [*shown, Memscope.configuration.inspect, Memscope.configuration.to_s]
    RUBY

    refute_includes found.join, "hunter2"
    assert_includes found[2], 'username="memory" password=(secret)'
  end

  # Printing and flattening ask any object for conversions that it may lack.
  def test_the_builder_can_be_printed
    assert_equal "fine", child("Memscope.configure { |c| [[c]].flatten; puts c }\n'fine'")
  end

  # Every example is valid.
  def test_the_examples
    examples = SETTINGS.transform_values(&:example)
    found = child(<<~RUBY, env: { "MEMORY_PASSWORD" => "x" })
      Memscope.configure { |c| #{examples.map { |name, code| "c.#{name} = #{code}" }.join('; ')} }
      Memscope::Configuration::SETTINGS.reject { |name, setting|
        Memscope.configuration.public_send(name) != setting.default }.keys
    RUBY

    assert_empty found
  end

  def test_it_is_not_loaded_with_memscope
    assert_empty child("$LOADED_FEATURES.grep(/configuration/)")
  end
end
