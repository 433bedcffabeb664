# frozen_string_literal: true

require_relative "traced_program"
require_relative "tracer"

# The Rubies and allocators of processes that are traced, and the states that these are in: this Ruby under glibc's
# malloc and, in `rake battery:attach_states`, each Ruby of MEMSCOPE_TRACED_RUBIES (prefixes, separated by colons, for
# which it has built the extension) and this one, under each of ALLOCATORS.
module TracedTargets
  # name: "3_1_2_glibc". command: of its Ruby. extension: memscope.so for it.
  Target = Struct.new(:name, :version, :command, :preload, :extension, keyword_init: true) do
    # @return [Hash] options of TracedProgram
    def program = { ruby: command, preload: preload }

    def own? = extension == Tracer::EXTENSION

    # @return [Boolean] whether its Ruby is built with YJIT
    def yjit?
      system(ChildProcess.environment(nil, {}), *command, "--yjit", "-e", "1", %i[out err] => File::NULL)
    end

    # @return [Array<String>] the directories from which its processes load memscope
    def load_path = [File.join(ChildProcess::ROOT, "lib"), File.dirname(extension, 2)].uniq

    # @return [Tracer::Outcome]
    def copy(program, *expressions, **options)
      Tracer.copy(program.pid, *expressions, extension: extension, ruby: version[/\A\d+\.\d+/], **options)
    end
  end

  WAITS, TIMED, WORKS =
    IO.popen([*ChildProcess.ruby, "#{TracedProgram::WORKLOADS}/state.rb", "--list"]) { |list| list.map(&:split) }
  # How often each process is visited.
  VISITS = Integer(ENV.fetch("VISITS", "1"))

  bare = ChildProcess.environment(nil, {})
  others = ENV.fetch("MEMSCOPE_TRACED_RUBIES", "").split(":").map do |prefix|
    ruby = "#{prefix}/bin/ruby"
    { version: IO.popen(bare, [ruby, "--disable-gems", "-e", "print RUBY_VERSION"], &:read),
      command: [ruby, "--disable-gems"],
      extension: "#{ChildProcess::ROOT}/tmp/#{File.basename(prefix)}/memscope/memscope.so" }
  end
  rubies = [{ version: RUBY_VERSION, command: ChildProcess.ruby, extension: Tracer::EXTENSION }, *others]
  ALL = rubies.product(ENV.fetch("ALLOCATORS", "glibc").split).map do |ruby, allocator|
    Target.new(name: "#{ruby[:version].tr('.', '_')}_#{allocator}",
               preload: ChildProcess::ALLOCATORS.fetch(allocator.to_sym), **ruby)
  end.freeze

  # In the long form, prints when a timeout of a second was over.
  def self.tell(target, state, line, visits)
    puts "#{target.name} #{state}: #{line.chomp} beside #{visits} visits" if ENV.key?("VISITS")
  end

  # Defines a test for each target, and each of `states`; the block gets both.
  def for_each_target(name, states = [nil], &body)
    ALL.product(states) do |target, state|
      define_method(["test", name, state, target.name].compact.join("_")) { instance_exec(target, state, &body) }
    end
  end
end
