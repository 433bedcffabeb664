# frozen_string_literal: true

require "erb"
require "etc"
require "open3"
require "rbconfig"

# docs/benchmarks.md: what short forms of benchmark/ print here and now, each beside a named peer or floor, with the
# machine and how busy it was. Nothing is left out, goals that are missed least of all.
module Benchmarks
  # Environments, by file, with which all of them take a minute or so on an idle machine. Those that measure the CPU
  # time of a process come last: a busy machine changes them least.
  FORMS = {
    "benchmark/rss.rb" => {},
    "benchmark/require.rb" => { "PAIRS" => "7" },
    "benchmark/census.rb" => {},
    "benchmark/measure.rb" => { "ALLOCATIONS" => "100000", "ROUNDS" => "3" },
    "benchmark/scrape.rb" => {},
    "benchmark/mcp.rb" => { "ROUNDS" => "3" }
  }.freeze
  PEERS = %w[get_process_mem memory_profiler prometheus-client].freeze
  Ran = Struct.new(:name, :about, :command, :output, :seconds, :failed)

  class << self
    # @return [String] content of the page
    def page(forms = FORMS)
      before = load_average
      results = forms.map { |file, environment| run(file, environment) }
      template = ERB.new(File.read("docs/benchmarks.md.erb", encoding: "UTF-8"), trim_mode: "-")
      template.result_with_hash(machine: machine, results: results, before: before, after: load_average,
                                date: Time.now.utc.strftime("%-d %B %Y"))
    end

    # @return [Ran] what a benchmark printed, also if it failed, which some do where a goal is missed
    def run(file, environment)
      started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
      output, status = Open3.capture2e({ "RUBYOPT" => nil, **environment }, "nice", "-n", "10", RbConfig.ruby, "-W0",
                                       "-rbundler/setup", "-Ilib", file)
      seconds = (Process.clock_gettime(Process::CLOCK_MONOTONIC) - started).round
      settings = environment.map { |name, value| "#{name}=#{value} " }.join
      Ran.new(File.basename(file, ".rb"), about(file), "#{settings}bundle exec ruby -Ilib #{file}",
              output.force_encoding("UTF-8").rstrip, seconds, !status.success?)
    end

    # @return [Hash{String => String}] what figures depend on
    def machine
      { "processor" => "#{processor}, #{Etc.nprocessors} in use", "memory" => "#{memory} GiB",
        "kernel" => "Linux #{Etc.uname.fetch(:release)[/\A\d+\.\d+/]}", "C library" => libc, "Ruby" => RUBY_DESCRIPTION,
        "peers" => peers }
    end

    private

    # The first paragraph of the comment at the top of a file.
    def about(file)
      comment = File.read(file, encoding: "UTF-8")[/\A# frozen.*?\n\n((?:#.*\n)+)/, 1]
      comment.lines.take_while { |line| line != "#\n" }.map { |line| line.delete_prefix("#").strip }.join(" ")
    end

    def load_average = File.read("/proc/loadavg").split.first

    def processor = File.read("/proc/cpuinfo")[/^model name\s*: (.+)/, 1] || RbConfig::CONFIG["host_cpu"]

    def memory = (File.read("/proc/meminfo")[/\d+/].to_i / 1_048_576.0).round

    def libc = Etc.confstr(Etc::CS_GNU_LIBC_VERSION)

    def peers = PEERS.filter_map { |name| Gem.loaded_specs[name]&.then { |gem| "#{name} #{gem.version}" } }.join(", ")
  end
end
