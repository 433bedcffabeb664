# frozen_string_literal: true

require "tmpdir"
require_relative "../test_helper"
require_relative "../support/malloc_profile_ways"

# A profile with each backend under valgrind, which sees what AddressSanitizer cannot: memory accesses by Ruby's own
# code when the profile makes it read frames; and jemalloc, which cannot serve malloc under a sanitizer.
class MallocProfileValgrindTest < MemscopeTest
  extend MallocProfileWays

  # valgrind does not track blocks served by jemalloc, but does track unmapped memory and stacks.
  WAYS = MallocProfileWays::EACH_BACKEND
  VALGRIND = %w[valgrind --quiet --num-callers=100 --error-limit=no --leak-check=no --xml=yes
                --soname-synonyms=somalloc=nouserintercepts].freeze

  # Samples in every state, threads that start and end, code that is freed, a forked child, and a second profile.
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

  # Errors in what memscope has called. Ruby scans whole stacks for objects, initialised or not, so uses of
  # uninitialised values count only in memscope's own code. With XML output, valgrind looks for leaks in spite of
  # --leak-check=no.
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
