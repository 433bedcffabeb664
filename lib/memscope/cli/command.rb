# frozen_string_literal: true

require "io/console"
require "optparse"
require_relative "../show/report"
require_relative "help"

module Memscope
  # A program that memscope has started has a part of Launch already.
  const_defined?(:Launch) ? require_relative("launch") : autoload(:Launch, "#{__dir__}/launch.rb")

  module CLI
    # Ends a command with an exit status and a message.
    class Failure < SystemExit; end

    WORDS = Words.beside(__FILE__)

    # The arguments that an option allows: `type[text]` is the argument's value, or nil. `fits` judges the value.
    # `words` are for messages.
    # @api private
    Limit = Struct.new(:type, :fits, :words) do
      def self.of(range) = new(NUMBER, range.method(:cover?), WORDS.fill(:number_from, from: range.min, to: range.max))

      def self.one_of(names) = new(names.to_h { |name| [name.name, name] }, :itself.to_proc, names.join(", "))

      def self.seconds(most, words) = new(FRACTION, ->(number) { number.positive? && number <= most }, words)

      def value(text) = type[text]&.then { |value| value if fits.call(value) }
    end

    NUMBER = ->(text) { Integer(text, 10, exception: false) }
    FRACTION = ->(text) { Float(text, exception: false) }

    # A command's arguments: their Limits by option, at most `most` operands, options for -- COMMAND alone (`program`)
    # and for anything else (`process`), lists of options whose first one excludes the others, and defaults.
    # @api private
    Declaration = Struct.new(:limits, :most, :program, :process, :exclusive, :defaults, keyword_init: true)

    # The base of all commands: arguments, help, output, other processes, programs to start.
    #
    # A subclass declares its arguments. It defines `perform`, which reads this process or another one, or `start`,
    # which becomes COMMAND, or both.
    class Command
      # Exit statuses. Those of failures are EX_USAGE and EX_IOERR of sysexits.h.
      FINE = 0
      USAGE = 64
      INPUT_OUTPUT = 74
      PROGRAM = "-- COMMAND [ARG...]"
      # Seconds, up to a day.
      SECONDS = Limit.seconds(86_400, WORDS[:seconds]).freeze
      LIMITS = { pid: Limit.new(NUMBER, :positive?.to_proc, WORDS[:process_id]),
                 top: Limit.of(1..10_000), **%i[every seconds warmup].to_h { |name| [name, SECONDS] } }.freeze
      EXCLUSIVE = [%i[pid socket], %i[markdown json], %i[no_attach pause so]].freeze
      # Options of a copy of the process.
      COPIES = %i[no_attach pause so].freeze
      DECLARED = { limits: {}, most: 0, program: [], process: [], exclusive: [], defaults: {} }.freeze

      def self.title = name.split("::").last.delete_suffix("Command").downcase

      def self.declaration = @declaration || declare

      def self.declare(**fields) = @declaration = Declaration.new(**DECLARED, **fields).freeze

      def self.write(out, text)
        out.write(text)
        out.flush
        FINE
      rescue Errno::EPIPE # as of head, which has read enough
        raise Failure.new(INPUT_OUTPUT, "")
      rescue SystemCallError, IOError => e
        why = e.is_a?(SystemCallError) ? e.class.new.message : e.message
        raise Failure.new(INPUT_OUTPUT, "standard output: #{why}")
      end

      # @return [String] "reprot (did you mean report?)"
      def self.questioned(given, known)
        checker = DidYouMean::SpellChecker.new(dictionary: known) if defined?(DidYouMean::SpellChecker)
        nearest, = checker&.correct(given)
        nearest ? WORDS.fill(:did_you_mean, given: given, nearest: nearest) : given
      end

      def initialize(out:, err:)
        @declared = self.class.declaration
        @out = out
        @err = err
        @given = {}
        @switches = {}
        usage, *items = Help.items(self.class.title)
        @parser = OptionParser.new(usage).tap { |parser| parser.version = VERSION }
        items.each do |item|
          item.match?(/\A +-/) ? define(item.strip.split(/, (?=--)| {2,}|\n */)) : @parser.separator(item)
        end
      end

      # @return [Integer] the exit status, unless this process has become COMMAND
      def run(arguments)
        own = becomes_program? ? arguments.take_while { |argument| argument != "--" } : arguments
        @command = arguments.drop(own.size + 1) if own != arguments || operands.include?(PROGRAM)
        @operands = @parser.parse(own)
        return Command.write(@out, @parser.help) if @given[:help]

        check
        @given = { **@declared.defaults, **@given }
        program? ? launch : perform
      rescue OptionParser::ParseError => e
        given = Field.line(e.args.join(" ")[0, 80])
        given = Command.questioned(given, @switches.values.flat_map(&:long)) if e.is_a?(OptionParser::InvalidOption)
        refuse("#{e.reason}: #{given}")
      end

      private

      def define(words)
        name = words.grep(/\A--/).first[/\w[\w-]*/].tr("-", "_").to_sym
        limit = limit_of(name)
        default = @declared.defaults[name]&.then { |value| "default: #{value}" }
        @switches[name] = @parser.define(*words, *default) do |given|
          usage_error(:given_twice, option: dashed(name)) if @given.key?(name) && given != true
          @given[name] = limit ? limit.value(given) : given
          next unless @given[name].nil?

          usage_error(:not_allowed, option: dashed(name), given: Field.excerpt(given), allowed: limit.words)
        end
      end

      def limit_of(name) = @declared.limits.fetch(name) { LIMITS[name] }

      def program? = !@command.nil?

      def becomes_program? = @parser.banner.include?(PROGRAM)

      def check
        [*EXCLUSIVE, *@declared.exclusive].each do |first, *others|
          other = others.find { |name| @given.key?(name) } if @given.key?(first)
          usage_error(:exclusive, option: dashed(first), other: dashed(other)) if other
        end
        misplaced, = @given.keys & (program? ? [:pid, :socket, *COPIES, *@declared.process] : @declared.program)
        usage_error(program? ? :not_for_command : :only_for_command, option: dashed(misplaced)) if misplaced
        most = program? ? 0 : @declared.most
        refuse(WORDS.fill(:unexpected_argument, given: @operands[most])) if @operands.size > most
      end

      def dashed(name) = "--#{name.to_s.tr('_', '-')}"

      def refuse(why)
        allowed = [*@switches.values.map { |switch| "#{switch.long.first}#{switch.arg}" }, *operands]
        usage_error(:not_an_option, why: why, allowed: allowed.join(", "))
      end

      def usage_error(message, **figures) = raise(Failure.new(USAGE, worded(message, figures)))

      def failure(message, **figures) = raise(Failure.new(INPUT_OUTPUT, worded(message, figures)))

      def say(message, **figures) = @err.puts("memscope #{self.class.title}: #{worded(message, figures)}")

      def worded(message, figures) = message.is_a?(Symbol) ? WORDS.fill(message, figures) : message

      # "[DUMP]" and "[-- COMMAND [ARG...]]", as in the usage.
      def operands = @parser.banner[/\[options\] \K.*/].to_s.split(/ (?=\[?-- )/)

      # Writes to FILE, else to standard output.
      def deliver = output ? create(yield(display)) : Command.write(@out, yield(display))

      # Writes readings: as JSON, one reading per line, or as pages, to which `view` passes options.
      def deliver_readings(readings, **view)
        deliver do |display|
          next readings.map { |reading| "#{reading.to_json}\n" }.join if @given[:json]

          "#{readings.map { |reading| reading.to_s(**display.to_h, **view) }.join("\n")}#{footer}"
        end
      end

      def footer = nil

      def display(io = @out) = output ? Report::Display.new(unicode: true) : Report::Display.of(io)

      def output = @given[:output]

      # @param option [Symbol] names a file with its JSON, of which no more is read than memscope can have written
      # @return [Reading, nil] nil if the option is not given
      def saved(kind, option)
        path = @given[option] or return
        kind.from_json(File.read(path, Client::MAX_ANSWER_BYTES).to_s)
      rescue Invalid, SystemCallError => e
        failure("#{dashed(option)} #{path}: #{e.is_a?(Invalid) ? e.as : e.class.new.message}")
      end

      # The file to open for a DUMP: `-` is standard input.
      def file_of(dump) = dump == "-" ? "/dev/stdin" : dump

      # Refuses files that memscope does not read. If memscope only writes the format, the message has that reason.
      def refuse_dumps(*paths, why)
        failure(:dumps_refused, files: paths.join(", "), why: why) if paths.size > 1
        format = Dump.format_of(*paths)
        read = [nil, :objspace].include?(format)
        failure(read ? :dump_refused : :dump_only_written, file: paths.first, why: why, format: format)
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

      def refuse_output(path, error) = failure(:output_refused, file: path, why: error.class.new.message)

      # Creates FILE empty before anything starts, and removes it if the block fails.
      def reserve_output
        create("") if output
        yield
      rescue Failure, Launch::Refusal
        File.unlink(output) if @file
        raise
      end

      # True if the command is about another process.
      def other? = @given.key?(:pid) || @given.key?(:socket)

      def other = @other ||= asking { @given[:socket] ? Client.at(@given[:socket]) : Client.new(@given[:pid]) }

      # For commands that cannot be about the memscope process itself.
      def require_other = other? || usage_error(:without_process)

      # Notes that the command is about its own process, which a person may not have meant.
      def note_own = other? || say(becomes_program? ? :own_process_or_command : :own_process)

      def ask(call, **options) = asking { other? ? other.call(call, **options) : Memscope.public_send(call, **options) }

      # Runs a block that calls the other process.
      def asking
        yield
      rescue Invalid => e
        usage_error(e.as(@given.key?(e.argument&.to_sym) ? dashed(e.argument) : e.argument))
      rescue Client::Unreachable, Client::Failed, Purge::Busy => e
        failure(e.message)
      end

      def launch
        usage_error(:without_command) if @command.empty?
        failure(Memscope.unsupported_reason) unless Memscope.supported?
        start
      rescue Launch::Refusal => e
        failure(:not_started, why: e.message, program: @command.first)
      end

      # Becomes the program, with an order for launch/autorun. Only the Ruby that runs memscope can load memscope's
      # extension, but another program may become this Ruby.
      def hand_over(mode, environment = Launch::Environment.new(ENV), **order)
        other = Launch.stranger(@command.first)
        say(:another_program, program: other, ruby: RbConfig.ruby) if other
        write_order(mode, environment, display: display(@err).to_h, **order)
        reserve_output { become(environment) }
      end

      # The environment in which an allocator serves the program's malloc. The program proves it.
      def served(allocator, conf, profiled:)
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
        raise Failure.new(e.is_a?(Errno::ENOENT) ? 127 : 126, "#{name}: #{e.class.new.message}")
      end
    end
  end
end
