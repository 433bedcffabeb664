# frozen_string_literal: true

require "io/console"
require "optparse"
require_relative "../show/report"

module Memscope
  # A program that memscope has started has a part of Launch already.
  const_defined?(:Launch) ? require_relative("launch") : autoload(:Launch, "#{__dir__}/launch.rb")

  module CLI
    # Ends a command with a message and an exit status.
    class Failure < StandardError
      # @return [Integer]
      attr_reader :status

      # @param message [String]
      # @param status [Integer]
      def initialize(message, status)
        super(message)
        @status = status
      end
    end

    # What the argument of an option may be, besides its type: `fits` is called with the argument, `words` are for
    # messages.
    #
    # @api private
    Limit = Struct.new(:fits, :words) do
      # @param range [Range<Integer>]
      # @return [Limit]
      def self.of(range) = new(range.method(:cover?), "a number from #{range.min} to #{range.max}")
    end

    # What a command takes and says: `options` as for OptionParser#on, or with a Limit; `operands` for the help, and the
    # most of them; whether it can become COMMAND, then `program` names the options for that alone, and `process` those
    # for anything else, nil if there must be a COMMAND; lists of options whose first one excludes the others.
    #
    # @api private
    Declaration = Struct.new(:summary, :examples, :options, :operands, :most, :notes, :program, :process, :exclusive,
                             :defaults, keyword_init: true)

    # The base of all commands: arguments, help, output, other processes, programs to start.
    #
    # A subclass declares what it takes. It defines `perform`, which reads this process or another one, or `start`,
    # which becomes COMMAND, or both.
    class Command
      # The exit status of success.
      FINE = 0
      # The exit status for arguments that make no sense (EX_USAGE of sysexits.h).
      USAGE = 64
      # The exit status for a failure to read or write (EX_IOERR of sysexits.h).
      INPUT_OUTPUT = 74
      # Characters of an argument that a complaint repeats.
      MAX_GIVEN = 80

      NUMBER = OptionParser::DecimalInteger
      # Seconds, up to a day.
      SECONDS = Limit.new(->(seconds) { seconds.positive? && seconds <= 86_400 },
                          "a number of seconds above 0, up to 86400").freeze
      # Options of several commands.
      PROCESS = [["--pid N", NUMBER, Limit.new(:positive?.to_proc, "a process ID, as `memscope ps` lists them"),
                  "process N; memscope ps lists those that listen"],
                 ["--socket PATH", "the process that listens at PATH"]].freeze
      TEXT = [["--json", "print JSON, one object per line"],
              ["--output FILE", "write to FILE, which must not exist yet"]].freeze
      TOP = ["--top N", NUMBER, Limit.of(1..10_000), "how many rows to list"].freeze
      EXCLUSIVE = [%i[pid socket], %i[markdown json]].freeze
      DECLARED = { most: 0, process: [], exclusive: [], defaults: {} }.freeze
      private_constant :DECLARED, :NUMBER, :SECONDS, :PROCESS, :TEXT, :TOP, :EXCLUSIVE, :MAX_GIVEN

      class << self
        # @return [String]
        def title = name.split("::").last.delete_suffix("Command").downcase

        # @return [Declaration]
        attr_reader :declaration

        # @param summary [String] one line
        # @param examples [Array<String>]
        # @param rest [Hash{Symbol => Object}] further fields of the Declaration
        # @return [void]
        def declare(summary, *examples, **rest)
          @declaration = Declaration.new(summary: summary, examples: examples, **DECLARED, **rest).freeze
        end

        # Writes all of a text.
        #
        # @param out [IO]
        # @param text [String]
        # @return [Integer] the exit status of success
        # @raise [Failure]
        def write(out, text)
          out.write(text)
          out.flush
          FINE
        rescue SystemCallError, IOError => e
          raise Failure.new("standard output: #{e.message}", INPUT_OUTPUT)
        end

        # @param given [String] a wrong word
        # @param known [Array<String>]
        # @return [String] "reprot (did you mean report?)"
        def questioned(given, known)
          checker = DidYouMean::SpellChecker.new(dictionary: known) if defined?(DidYouMean::SpellChecker)
          nearest, = checker&.correct(given)
          nearest ? "#{given} (did you mean #{nearest}?)" : given
        end
      end

      # @param out [IO]
      # @param err [IO]
      def initialize(out:, err:)
        @declared = self.class.declaration
        @out = out
        @err = err
        @given = {}
        @parser = OptionParser.new.tap { |parser| parser.version = VERSION }
        @allowed = {}
        [*@declared.options, ["-h", "--help", "print this"]].each { |words| define(words) }
      end

      # @param arguments [Array<String>] those after the command's name
      # @return [Integer] the exit status, unless this process has become COMMAND
      # @raise [Failure]
      def run(arguments)
        own = @declared.program ? arguments.take_while { |argument| argument != "--" } : arguments
        @command = arguments.drop(own.size + 1) if own != arguments || @declared.process.nil?
        @operands = @parser.parse(own)
        return Command.write(@out, help) if @given[:help]

        check
        @given = { **@declared.defaults, **@given }
        program? ? launch : perform
      rescue OptionParser::ParseError => e
        refuse_arguments(e)
      end

      # @return [String]
      def help
        usage = ["usage: memscope", self.class.title, "[options]", *operands].join(" ")
        ["#{usage}\n", "#{@declared.summary.sub(/\A./, &:upcase)}.\n", @parser.summarize.join, @declared.notes,
         "example:\n#{@declared.examples.map { |text| "  #{text}\n" }.join}"].compact.join("\n")
      end

      private

      # Adds an option to the parser.
      def define(words)
        limit, = words.grep(Limit)
        name = words.grep(/\A--/).first[/\w[\w-]*/].tr("-", "_").to_sym
        default = @declared.defaults[name]&.then { |value| "default: #{value}" }
        @allowed[name] = limit&.words || words.grep(Array).first&.join(", ")
        @parser.on(*words.grep_v(Limit), *default) do |value|
          raise OptionParser::InvalidArgument, value.to_s if limit && !limit.fits.call(value)

          @given[name] = value
        end
      end

      # Whether the command becomes COMMAND.
      def program? = !@command.nil?

      def check
        [*EXCLUSIVE, *@declared.exclusive].each do |first, *others|
          other = others.find { |name| @given.key?(name) } if @given.key?(first)
          usage_error("#{dashed(first)} and #{dashed(other)} exclude each other") if other
        end
        misplaced, = @given.keys & (program? ? [:pid, :socket, *@declared.process] : @declared.program.to_a)
        usage_error("#{dashed(misplaced)} is #{program? ? 'not' : 'only'} for -- COMMAND") if misplaced
        most = program? ? 0 : @declared.most
        refuse("unexpected argument: #{@operands[most]}") if @operands.size > most
      end

      # @return [String] "--paths-to" for :paths_to
      def dashed(name) = "--#{name.to_s.tr('_', '-')}"

      def refuse(complaint, allowed = nil) = usage_error("#{complaint}; allowed: #{allowed || self.allowed.join(', ')}")

      def refuse_arguments(error)
        given = Field.line(error.args.join(" ")[0, MAX_GIVEN])
        case error
        when OptionParser::InvalidArgument, OptionParser::MissingArgument then allowed = allowed_by(error.args.first)
        when OptionParser::InvalidOption
          given = Command.questioned(given, @parser.top.list.map { |switch| switch.long.first })
        end
        refuse("#{error.reason}: #{given}", allowed)
      end

      # What may be given to an option, by its name or its beginning.
      def allowed_by(option)
        name = option[/[^-=][^=]*/]
        switch = @parser.top.list.find { |one| one.switch_name.start_with?(name) || one.short.include?(name) }
        @allowed[switch.switch_name.tr("-", "_").to_sym] || switch.arg.strip
      end

      def usage_error(message) = raise(Failure.new(message, USAGE))

      def failure(message) = raise(Failure.new(message, INPUT_OUTPUT))

      def allowed = [*@parser.top.list.map { |switch| "#{switch.long.first}#{switch.arg}" }, *operands]

      # The operands, for the help.
      def operands
        command = @declared.process ? "[-- COMMAND [ARG...]]" : "-- COMMAND [ARG...]" if @declared.program
        [*@declared.operands, *command]
      end

      def say(note) = @err.puts("memscope #{self.class.title}: #{note}")

      # Writes to FILE, else to standard output.
      #
      # @yieldparam display [Report::Display] how to format the text
      def deliver = output ? create(yield(Report::Display.new(unicode: true))) : Command.write(@out, yield(display))

      # Writes readings: as JSON, one reading per line, or as pages, to which `view` passes options.
      def deliver_readings(readings, **view)
        deliver do |display|
          next readings.map { |reading| "#{reading.to_json}\n" }.join if @given[:json]

          readings.map { |reading| reading.to_s(**display.to_h, **view) }.join("\n")
        end
      end

      def display = @display ||= Report::Display.of(@out)

      def output = @given[:output]

      # Reads a file that an option names. A file that is too large to have come from memscope is not read to its end.
      def read_in_full(path, option)
        text = File.open(path) { |file| file.read(Client::LONGEST_ANSWER + 1).to_s }
        return text unless text.bytesize > Client::LONGEST_ANSWER

        failure("#{option} #{path}: has more than #{Client::LONGEST_ANSWER >> 20} " \
                "MiB, the most that memscope reads")
      rescue SystemCallError => e
        failure("#{option} #{path}: #{e.class.new.message}")
      end

      # Writes to FILE, which is created at first, with mode 0600, and removed again if it cannot be written in full.
      def create(text)
        earlier = @file
        @file ||= File.open(output, "wbx", 0o600, flags: File::NOFOLLOW)
        @file.write(text)
        @file.flush
      rescue SystemCallError => e
        failure("--output #{output}: #{e.class.new.message}") if earlier
        File.unlink(output) if @file
        refuse_output(output, e)
      end

      def refuse_output(path, error)
        failure("--output #{path}: #{error.class.new.message}; allowed: a file that " \
                "does not exist yet, in a directory that can be written to")
      end

      # Creates FILE empty before anything starts, and removes it if the block fails.
      def reserve_output
        create("") if output
        yield
      rescue Failure, Launch::Refusal
        File.unlink(output) if @file
        raise
      end

      # Whether the command is about another process.
      def other? = @given.key?(:pid) || @given.key?(:socket)

      # The client of the other process.
      def other
        @other ||= asking { @given[:socket] ? Client.at(@given[:socket]) : Client.new(@given[:pid]) }
      end

      # For commands that say nothing of the memscope process.
      def require_other
        usage_error("no process given; allowed: --pid N, --socket PATH") unless other?
      end

      # Notes that the command is about its own process, which a person may not have meant.
      def note_own
        command = ", -- COMMAND" if @declared.program
        say("this is the memscope process itself; for another one: --pid N#{command}") unless other?
      end

      # @param call [Symbol] of Memscope
      # @return [Reading] of the other process, or of this one
      def ask(call, **options) = asking { other? ? other.call(call, **options) : Memscope.public_send(call, **options) }

      # Runs a block that calls the other process.
      def asking
        yield
      rescue Invalid => e
        option = dashed(e.argument)
        usage_error(e.as(@parser.top.list.any? { |switch| switch.long.first == option } ? option : e.argument))
      rescue Client::Unreachable, Client::Failed, Purge::Busy => e
        failure(e.message)
      end

      def launch
        usage_error("no command given; allowed: -- COMMAND [ARG...]") if @command.empty?

        start
      rescue Launch::Refusal => e
        failure("#{e.message}; #{@command.first} is not started")
      end

      # Becomes the program, with an order for launch/autorun. Only the Ruby that runs memscope can load memscope's
      # extension; another program may become this Ruby.
      def hand_over(mode, environment = Launch::Environment.new(ENV), **order)
        failure(Memscope.unsupported_reason) unless Memscope.supported?
        other = Launch.stranger(@command)
        say("#{other} is not #{RbConfig.ruby}: nothing is done unless it becomes that Ruby by exec") if other
        display = Report::Display.of(@err).to_h.slice(:width, :color) unless output
        write_order(mode, environment, **display.to_h, **order)
        reserve_output { become(environment) }
      end

      # The environment in which an allocator serves the program's malloc. The program proves it.
      #
      # @param allocator [String] as for Environment#serve
      # @param conf [String] pairs for MALLOC_CONF
      # @param profiled [Boolean] whether they enable jemalloc's profiler because memscope was asked for it
      def served(allocator, conf, profiled:)
        failure(Memscope.unsupported_reason) unless Memscope.supported?
        Launch::Environment.new(ENV).tap do |environment|
          environment.serve(allocator)
          environment.configure(conf) unless conf.empty?
          write_order("proof", environment, expected: allocator, conf: !conf.empty?, profiled: profiled)
        end
      end

      def write_order(mode, environment, **order)
        path = File.expand_path(output) if output
        Launch::Handoff.write(mode, environment, title: self.class.title, status: INPUT_OUTPUT, output: path, **order)
      end

      def become(environment)
        environment.notes.each { |note| say(note) }
        name, *arguments = @command
        Process.exec(environment.changes, [name, name], *arguments)
      rescue SystemCallError => e
        raise Failure.new("#{name}: #{e.class.new.message}", e.is_a?(Errno::ENOENT) ? 127 : 126)
      end
    end
  end
end
