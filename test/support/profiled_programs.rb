# frozen_string_literal: true

require_relative "launching"

# Programs that keep memory, and the profiles that they print.
module ProfiledPrograms
  include Launching

  # Keeps 5 MiB from its second line.
  KEEPER = <<~RUBY
    $kept = []
    def keep(count) = count.times { $kept << ("x" * 10_000) }
    def churn(count) = count.times { "y" * 10_000 }
    churn(2000)
    keep(525)
    $stdout.puts "done"
  RUBY
  # The same, after a cache of 5 MiB has been filled and the warm-up has ended.
  LEAK = <<~RUBY.freeze
    $cache = Array.new(525) { "c" * 10_000 }
    Memscope::MallocProfile.next_generation
    #{KEEPER}
  RUBY

  # Waits until the requested seconds are over.
  WHILE_PROFILED = "sleep 0.01 while Memscope::MallocProfile.running?"

  def keeper(script = KEEPER) = [*RUBY, make("keeper.rb", script)]

  def profile(ran)
    json = ran.err.lines.find { |line| line.start_with?("{") }
    Memscope::Profile.from_json(json)
  end

  def assert_keeper(profile, lineno)
    entry = profile.by(:line).first

    assert_equal [path("keeper.rb"), lineno], [entry.path, entry.lineno]
    assert_in_delta 5_250_000, entry.live_bytes, 4 * entry.error_bytes
  end
end
