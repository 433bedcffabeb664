# frozen_string_literal: true

require "io/console"
require "optparse"
require_relative "../report"

module Memscope
  # A program that memscope has started has a part of Launch already.
  const_defined?(:Launch) ? require_relative("../launch") : autoload(:Launch, File.expand_path("../launch.rb", __dir__))

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
      # @param range [Range] of numbers
      # @param what [String]
      # @return [Limit]
      def self.of(range, what = "a number") = new(range.method(:cover?), "#{what} from #{range.min} to #{range.max}")
    end

    # The base of all commands: arguments, help, output, other processes, programs to start.
    #
    # A subclass has FORMS: `:process`, which reads this process or another one, `:program`, which becomes COMMAND, or
    # both. Each form has a summary, an example, options (as for OptionParser#on, or with a Limit) and, if needed,
    # defaults and notes.
    # The subclass defines `perform` for `:process`, and `start` for `:program`.
    class Command
      # The exit status of success.
      FINE = 0
      # The exit status for arguments that make no sense (EX_USAGE of sysexits.h).
      USAGE = 64
      # The exit status for a failure to read or write (EX_IOERR of sysexits.h).
      INPUT_OUTPUT = 74

      # Seconds, up to a day.
      SECONDS = Limit.new(->(seconds) { seconds.positive? && seconds <= 86_400 },
                          "a number of seconds above 0, up to 86400").freeze
      # Options of several commands.
      PROCESS = [["--pid N", OptionParser::DecimalInteger,
                  Limit.new(:positive?.to_proc, "a process ID, as `memscope ps` lists them"),
                  "process N; memscope ps lists those that listen"],
                 ["--socket PATH", "the process that listens at PATH"]].freeze
      TEXT = [["--json", "print JSON, one object per line"],
              ["--output FILE", "write to FILE, which must not exist yet"]].freeze
      private_constant :SECONDS, :PROCESS, :TEXT

      class << self
        # @return [String]
        def title = name.split("::").last.delete_suffix("Command").downcase

        # @return [String] one line
        def summary = forms.values.first.fetch(:summary)

        # @return [Hash{Symbol => Hash}] the subclass's FORMS
        def forms = const_get(:FORMS)

        # @param arguments [Array<String>] those after the command's name
        # @param out [IO]
        # @param err [IO]
        # @return [Integer] the exit status, unless this process has become COMMAND
        # @raise [Failure]
        def run(arguments, out:, err:)
          own = arguments.take_while { |argument| argument != "--" }
          programs = forms.key?(:program) && (own != arguments || forms.one?)
          return new(:process, out: out, err: err).run(arguments) unless programs

          new(:program, out: out, err: err).run(own, arguments.drop(own.size + 1))
        end

        # @return [String] the help of each form
        def help = forms.keys.map { |form| new(form, out: nil, err: nil).help }.join("\n")
      end

      # @param form [Symbol] a key of FORMS
      # @param out [IO]
      # @param err [IO]
      def initialize(form, out:, err:)
        @form = form
        @out = out
        @err = err
        @given = self.class.forms.dig(form, :defaults).to_h.dup
        @parser = OptionParser.new
        @parser.version = VERSION
        @limits = {}
        [*self.class.forms.dig(form, :options), ["-h", "--help", "print this"]].each { |words| define(words) }
      end

      # @param arguments [Array<String>] the options and operands
      # @param command [Array<String>] the program to become, and its arguments
      # @return [Integer] the exit status
      # @raise [Failure]
      def run(arguments, command = [])
        rest = @parser.parse(arguments)
        return CLI.write(@out, self.class.help) if @given[:help]

        take(rest)
        program? ? launch(command) : perform
      rescue OptionParser::ParseError => e
        refuse_arguments(e)
      end

      # @return [String] the help of this form
      def help
        summary, example, notes = self.class.forms.fetch(@form).values_at(:summary, :example, :notes)
        [usage, "#{summary.sub(/\A./, &:upcase)}.\n", @parser.summarize.join, notes,
         "example:\n  #{example}\n"].compact.join("\n")
      end

      private

      # Adds an option to the parser.
      def define(words)
        limits, words = words.partition { |word| word.is_a?(Limit) }
        name = words.join(" ")[/--(?:\[no-\])?([\w-]+)/, 1].tr("-", "_").to_sym
        default = "default: #{@given[name]}" if @given.key?(name)
        choices = words.grep(Array).first
        @limits[name] = limits.first || (choices && Limit.new(nil, choices.join(", ")))
        @parser.on(*words, *default) { |value| give(name, value) }
      end

      # Stores the value of an option.
      def give(name, value)
        fits = @limits[name]&.fits
        refuse_value(name, value) unless fits.nil? || fits.call(value)
        @given[name] = value
      end

      def program? = @form == :program

      def take(operands, most = 0)
        refuse("unexpected argument: #{operands[most]}") if operands.size > most
      end

      def refuse(complaint) = usage_error("#{complaint}; allowed: #{[*allowed, *operands].join(', ')}")

      def refuse_arguments(error)
        case error
        when OptionParser::InvalidArgument, OptionParser::MissingArgument
          refuse_value(*error.args.join(" ").delete_prefix("--").split(/[ =]/, 2))
        when OptionParser::InvalidOption
          known = @parser.top.list.map { |switch| switch.long.first }
          refuse("#{error.reason}: #{CLI.questioned(error.args.first, known)}")
        else refuse("#{error.reason}: #{error.args.join(' ')}")
        end
      end

      # @param option [String, Symbol] its name or the beginning of its name, or a dash and its letter
      # @param given [Object] nil if it was given no value
      def refuse_value(option, given = nil)
        option = option.to_s.tr("_", "-")
        switch = @parser.top.search(:short, option.delete_prefix("-")) ||
                 @parser.top.list.find { |one| one.switch_name.start_with?(option) }
        name = switch.switch_name
        shown = given.nil? ? "no value" : Field.excerpt(given)
        words = @limits[name.tr("-", "_").to_sym]&.words
        usage_error("--#{name}: given #{shown}, allowed: #{words || switch.arg.strip}")
      end

      def usage_error(message) = raise(Failure.new(message, USAGE))

      def failure(message) = raise(Failure.new(message, INPUT_OUTPUT))

      def allowed = @parser.top.list.map { |switch| "#{switch.long.first}#{switch.arg}" }

      # The operands, for the help.
      def operands = program? ? "-- COMMAND [ARG...]" : nil

      def usage
        start = "usage: memscope #{self.class.title}"
        words = [*(allowed - ["--help"]).map { |option| "[#{option}]" }, *operands]
        lines = words.join(" ").scan(/\S.{0,#{Report::Page::WIDTH - start.size - 2}}(?= \[(?!ARG)| -- |\z)/)
        "#{start} #{lines.join("\n#{' ' * start.size} ")}\n"
      end

      def say(note) = @err.puts("memscope #{self.class.title}: #{note}")

      # Writes to FILE, else to standard output.
      #
      # @yieldparam display [Report::Display] how to format the text
      def deliver = output ? create(yield(Report::Display.new(unicode: true))) : CLI.write(@out, yield(display))

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

        failure("#{option} #{path}: has more than #{Client::LONGEST_ANSWER >> 20} MiB, the most that memscope reads")
      rescue SystemCallError => e
        failure("#{option} #{path}: #{e.class.new.message}")
      end

      # Creates FILE, with mode 0600, and removes it again if it cannot be written in full. Appends to it later on.
      def create(text)
        earlier = @created
        File.open(output, earlier ? "ab" : "wbx", 0o600, flags: File::NOFOLLOW) do |file|
          @created = true
          file.write(text)
        end
      rescue SystemCallError => e
        failure("--output #{output}: #{e.class.new.message}") if earlier
        File.unlink(output) if @created
        refuse_output(output, e)
      end

      def refuse_output(path, error)
        failure("--output #{path}: #{error.class.new.message}; allowed: a file that does not exist yet, " \
                "in a directory that can be written to")
      end

      # Creates FILE empty before anything starts, and removes it if the block fails.
      def reserve_output
        create("") if output
        begin
          yield
        rescue Failure, Launch::Program::Unavailable
          File.unlink(output) if output
          raise
        end
      end

      # Waits for --seconds, or until it is interrupted.
      def wait
        sleep(@given[:seconds])
      rescue Interrupt
        say("stopped early")
      end

      # Whether the command is about another process.
      def other? = @given.key?(:pid) || @given.key?(:socket)

      # The client of the other process.
      def other
        pid, socket = @given.values_at(:pid, :socket)
        refuse("--pid and --socket exclude each other") if pid && socket

        @other ||= asking { socket ? Client.at(socket) : Client.new(pid) }
      end

      # Notes that the command is about its own process, which a person may not have meant.
      def note_own
        title = self.class.title
        say("this is the memscope process itself; for your program: memscope #{title} -- COMMAND") unless other?
      end

      # @param call [Symbol] of Memscope
      # @return [Reading] of the other process, or of this one
      def ask(call, **options) = asking { other? ? other.call(call, **options) : Memscope.public_send(call, **options) }

      # Runs a block that calls the other process.
      def asking
        yield
      rescue ArgumentError => e
        usage_error(e.message.sub(/\A(Memscope\.)?#{self.class.title}: /, ""))
      rescue Client::Unreachable, Client::Failed, Purge::Busy => e
        failure(e.message)
      end

      def launch(command)
        usage_error("no command given; allowed: #{operands}") if command.empty?

        @command = command
        start(Launch::Program.new(command, ENV.fetch("PATH", nil)))
      rescue Launch::Misuse => e
        usage_error(e.message)
      rescue Launch::Refusal => e
        failure("#{e.message}; #{command.first} is not started")
      rescue Launch::Program::Unavailable => e
        raise Failure.new(e.message, e.status)
      end

      # Refuses a program that is not run by the Ruby that runs memscope: no other Ruby can load memscope's extension.
      # The message names the purpose, such as "report" or "be profiled".
      def refuse_other_programs(program, purpose)
        unless program.ruby?
          usage_error("#{@command.first} is run by #{program.executable}, and only #{RbConfig.ruby}, which runs " \
                      "memscope, can #{purpose}: nothing is started")
        end
        failure(Memscope.unsupported_reason) unless Memscope.supported?
      end

      # Becomes the program, with an order for launch/autorun.
      def hand_over(mode, program, environment, **order)
        path = File.expand_path(output) if output
        display = Report::Display.of(@err).to_h.slice(:width, :color) unless path
        Launch::Handoff.write(mode, environment, title: self.class.title, output: path, status: INPUT_OUTPUT,
                                                 **display.to_h, **order)
        refuse_assignments(program, environment)
        reserve_output { become(program, environment) }
      end

      # env(1), as COMMAND or in the first line of a script, would override the prepared environment.
      def refuse_assignments(program, environment)
        name = program.assigned.find { |name| environment.changes.key?(name) || (block_given? && yield(name)) }
        return unless name

        title = "memscope #{self.class.title}"
        raise Launch::Refusal, "#{name} is set by env in the command, after #{title} has prepared the environment; " \
                               "set it for #{title} itself: env #{name}=... #{title} -- ..."
      end

      def become(program, environment)
        environment.notes.each { |note| say(note) }
        Process.exec(environment.changes, [program.path, @command.first], *@command.drop(1))
      rescue SystemCallError => e
        raise Launch::Program::Unavailable.new(program.path, e.class)
      end
    end
  end
end
