# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require_relative "../support/malloc_profile_ways"

# A profile with each backend under valgrind, which sees what AddressSanitizer does not: what Ruby's own code touches
# when the profile has it read frames, and jemalloc, which a sanitizer does not let serve malloc.
class MallocProfileValgrindTest < MemscopeTest
  extend MallocProfileWays

  # Memory that jemalloc serves it does not follow; what is unmapped or on a stack, it does.
  WAYS = MallocProfileWays::EACH_BACKEND
  VALGRIND = %w[valgrind --quiet --num-callers=100 --error-limit=no --leak-check=no --xml=yes
                --soname-synonyms=somalloc=nouserintercepts].freeze

  # Samples in every state, threads that come and go, code that dies, a forked child, and a profile after the first.
  SCRIPT = <<~RUBY
    start = -> { Memscope::MallocProfile.start(rate: 1 << 10, backend: ENV.fetch("BACKEND").to_sym) }
    start.call
    require "zlib"
    %i[here without_gvl pthread].each { |how| Leaks.leak(512, 1000, how) && Leaks.churn(500, how) }
    Leaks.churn(500, :here) || Leaks.resize(1024, 300, :here) || Leaks.free(1000, :pthread)
    kept = Array.new(20) { Zlib::Deflate.new } + Array.new(500) { "x" * 3000 } + [Leaks.churning_object]
    4.times { Array.new(4) { Thread.new { Leaks.churn_at_thread_end || 20.times { eval("'q' * 2000") } } }.each(&:join) }
    Leaks.churn_at_exit
    GC.compact
    samples = [Memscope::MallocProfile.snapshot.samples]
    pid = fork { Leaks.leak(512, 500, :here) || (GC.compact && exit!(Memscope::MallocProfile.snapshot.samples > 0)) }
    Process.wait(pid)
    Memscope::MallocProfile.stop
    start.call
    Leaks.leak(512, 500, :here)
    samples << Memscope::MallocProfile.stop.samples
    puts JSON.generate(samples: samples, child: $?.success?)
  RUBY

  def setup
    skip "takes half a minute each: rake test:valgrind" unless Integer(ENV.fetch("SECONDS", "0")) >= 60
    skip "no valgrind: bin/packages valgrind" unless system("valgrind", "--version", out: File::NULL, err: File::NULL)
  end

  each_way("leaves_no_errors") do |settings|
    Dir.mktmpdir do |directory|
      command = [*VALGRIND, "--xml-file=#{directory}/%p.xml", RbConfig.ruby,
                 *ChildProcess::LOAD_PATH.map { |path| "-I#{path}" }, "-rjson", "-rmemscope", "-rmemscope_test"]
      answer = ChildProcess.run_command(*command, "-e", SCRIPT, timeout: 300, **settings).json

      assert answer["child"]
      answer["samples"].each { |samples| assert_operator samples, :>, 100 }
      assert_empty(Dir["#{directory}/*.xml"].flat_map { |path| errors(File.read(path)) })
    end
  end

  private

  # Those in what memscope has called. Ruby looks for objects in all of a stack, defined or not: that an undefined value
  # is used counts where memscope's own code does it. With XML valgrind looks for leaks whatever it is told.
  def errors(xml)
    xml.scan(%r{<error>.*?</error>}m).select do |error|
      kind = error[%r{<kind>(.*)</kind>}, 1]
      objects = error[%r{<stack>.*?</stack>}m].scan(%r{<frame>.*?</frame>}m).map do |frame|
        frame[%r{<obj>(.*)</obj>}, 1]
      end
      objects = objects.first(1) if kind.start_with?("Uninit")
      !kind.start_with?("Leak") && objects.any? { |object| object&.end_with?("/memscope.so") }
    end
  end
end
