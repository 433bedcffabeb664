# frozen_string_literal: true

require "tempfile"

module Memscope
  module CLI
    # `memscope requires -- COMMAND`: what each file and gem that a Ruby program loads costs.
    class RequiresCommand < Command
      NOTES = <<~TEXT
        COMMAND runs to its end, --runs times. The report goes to standard error, or to
        FILE. Load order matters: memory that is in use at the end is charged to the
        file that was being loaded when it was allocated, the innermost one. All costs
        sum to the growth of the rows "live slots" and "in use" of `memscope report`
        while COMMAND ran. --alone also requires each of the N most costly gems, with
        its dependencies, in a separate process. Only the started process is measured,
        even past exec; no children.

        exit status: COMMAND's own; 1 if it succeeds, but objects and malloc take more
        than --limit, in the median run
      TEXT
      # Bytes of each unit that --limit may have, in lower case; upper case is allowed too.
      UNITS = { "" => 1, "k" => 10**3, "m" => 10**6, "g" => 10**9,
                "ki" => 1 << 10, "mi" => 1 << 20, "gi" => 1 << 30 }.freeze
      SIZE = /\A(\d+(?:\.\d+)?) ?([kmg]i?|)b?\z/i
      LIMIT = Limit.new(SIZE.method(:match?), "a number of bytes, or of KB, MB, GB, KiB, MiB or GiB").freeze
      number = ->(name, range, text) { ["--#{name} N", OptionParser::DecimalInteger, Limit.of(range), text] }
      FORMS = {
        program: { summary: "run a Ruby program and print what each gem and file that it loads costs",
                   example: "memscope requires --alone=10 -- bundle exec rails runner \"\"", notes: NOTES,
                   defaults: { runs: 1, alone: 0, top: 20 },
                   options: [number.call("runs", 1..100, "run COMMAND N times, and print the spread"),
                             number.call("alone", 0..1000, "also require each of the N most costly gems alone"),
                             number.call("top", 1..10_000, "how many gems and files to list"),
                             ["--limit SIZE", LIMIT, "fail if objects and malloc exceed SIZE,", "such as 150MB"],
                             ["--since FILE", "print the difference from FILE, written", "earlier with --json"],
                             ["--html", "print a page with an icicle graph"], *TEXT] }
      }.freeze
      # The exit status for a cost above the limit.
      EXCEEDED = 1
      NOT_ALONE = "only the --alone=N most costly gems are required alone, too"
      private_constant :NOTES, :UNITS, :SIZE, :LIMIT, :FORMS, :EXCEEDED, :NOT_ALONE

      private

      def start(program)
        excluded = %i[json since].find { |name| @given[name] } if @given[:html]
        refuse("--html and --#{excluded} exclude each other") if excluded
        refuse_other_programs(program, "be measured")
        earlier = Requires.from_json(read_in_full(@given[:since], "--since")) if @given[:since]
        reserve_output { report(measured(program), earlier) }
      rescue ArgumentError => e
        failure("--since #{@given[:since]}: #{e.message}")
      end

      def measured(program)
        readings = Array.new(@given[:runs]) { record(program) }
        with_alone(Requires::Repetition.of(readings))
      end

      # Runs a program to its end, in a child that becomes it.
      #
      # @param errors [IO, nil] where the program's standard error goes; nil: to memscope's own
      # @return [Requires]
      # @raise [Failure] with the program's status, if it failed or wrote nothing
      def record(program, command = @command, errors: nil)
        Tempfile.create("memscope") do |file|
          status = wait_for(fork { become_recorded(program, command, file.path, errors) })
          text = file.read
          next Requires.from_json(text) if status.success? && !text.empty?

          code = status.exitstatus.to_i
          raise Failure.new("#{command.first} #{failing(status)}", code.zero? ? INPUT_OUTPUT : code)
        end
      end

      def failing(status)
        return "was ended by SIG#{Signal.signame(status.termsig)}" if status.signaled?

        status.success? ? "ended without a report: by exit!, or by a program that takes no RUBYOPT" : "failed"
      end

      # Ends the program too if this process is asked to end.
      def wait_for(pid)
        _pid, status = Process.wait2(pid)
        status
      ensure
        Process.kill(:TERM, pid) unless status
      end

      # Runs in the child, and must not return.
      def become_recorded(program, command, path, errors)
        environment = Launch::Environment.new(ENV)
        Launch::Handoff.write("requires", environment, title: self.class.title, output: path)
        refuse_assignments(program, environment)
        $stderr.reopen(errors) if errors
        Process.exec(environment.changes, [program.path, command.first], *command.drop(1))
      rescue Launch::Refusal, SystemCallError => e
        say(e.message)
        exit!(INPUT_OUTPUT)
      end

      def with_alone(reading)
        gems = reading.gems.select(&:gem?)
        chosen = gems.first(@given[:alone])
        reasons = { alone_bytes: (NOT_ALONE if chosen.size < gems.size) }.compact
        costs = chosen.to_h do |gem|
          [gem.name, alone(gem, reading.load_path) { |why| reasons[:"alone_#{gem.name}"] = why }]
        end
        Requires::Repetition.with_alone(reading, costs, reasons)
      end

      # @return [Integer, nil] bytes that the gem's file costs in a new process, with what it requires
      def alone(gem, load_path, &why)
        command = [RbConfig.ruby, *load_path.map { |directory| "-I#{directory}" }, "-e", "require ARGV.first", gem.file]
        Tempfile.create("memscope") do |errors|
          reading = record(Launch::Program.new(command, ENV.fetch("PATH", nil)), command, errors: errors)
          node = reading.nodes.find { |one| one.path == gem.file }
          next reading.inclusive_bytes(node) if node

          unknown(gem, "is not among the files that it loads", &why)
        rescue Failure
          errors.rewind
          unknown(gem, "cannot be required#{errors.gets.to_s.chomp[/[^']*\z/]}", &why)
        end
      end

      def unknown(gem, fault)
        yield "alone, #{File.basename(gem.file)} of #{gem.name} #{fault}"
        nil
      end

      def report(reading, earlier)
        shown = earlier ? reading - earlier : reading
        view = earlier ? {} : { limit: @given[:top] }
        write_report(shown, view)
        limit = @given[:limit] && bytes(@given[:limit])
        return FINE if limit.nil?

        failure("--limit: what malloc has in use is unknown: #{reading.reasons[:malloc_bytes]}") unless reading.bytes
        return FINE if reading.bytes <= limit

        say("objects and malloc take #{Report::Quantity.size(reading.bytes)}, more than --limit #{@given[:limit]}")
        EXCEEDED
      end

      def write_report(reading, view)
        display = output ? Report::Display.new(unicode: true) : Report::Display.of(@err)
        text = if @given[:html] then Profile::Formats::Icicle.new(reading).to_s
               else @given[:json] ? "#{reading.to_json}\n" : reading.to_s(**display.to_h, **view)
               end
        output ? File.write(output, text) : @err.write(text)
      rescue SystemCallError => e
        failure("--output #{output}: #{e.class.new.message}")
      end

      def bytes(size)
        number, unit = SIZE.match(size).captures
        (Float(number) * UNITS.fetch(unit.downcase)).round
      end
    end
  end
end
