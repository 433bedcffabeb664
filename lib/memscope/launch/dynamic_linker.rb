# frozen_string_literal: true

require "open3"

module Memscope
  module Launch
    # What the dynamic linker says before a program runs.
    module DynamicLinker
      # ld.so of glibc, of an object that it leaves out.
      LEFT_OUT = /object '(?<object>.+?)' from LD_PRELOAD cannot be preloaded(?: \((?<why>.+?)\))?: ignored/
      # A line of what it lists: the name that is asked for, and the file where that is another.
      MAPPED = /^\s*(?<name>\S.*?) (?:=> (?<file>.+) )?\(0x\h+\)$/
      # glibc's C library, which has a malloc of its own.
      LIBC = "libc.so.6"
      # What has ld.so of glibc bind all symbols of a program and say so, without running it (ld.so(8)). Only there:
      # the one of musl would run it.
      BIND = { "LD_TRACE_LOADED_OBJECTS" => "1", "LD_WARN" => "yes", "LD_BIND_NOW" => "yes",
               "LD_DEBUG" => "bindings", "LD_DEBUG_OUTPUT" => nil }.freeze
      BOUND = /binding file (?<from>.+) \[0\] to (?<to>.+) \[0\]: normal symbol `malloc'/
      private_constant :LEFT_OUT, :MAPPED, :LIBC, :BIND, :BOUND

      class << self
        # Has a program's own dynamic linker say what it would map, and whose malloc would serve it, without running
        # the program. A malloc that the program keeps to itself, without exporting it, is not seen.
        #
        # @param program [Program]
        # @param library [String, nil] as in LD_PRELOAD; nil for the C library
        # @param changes [Hash{String => String, nil}] of the environment
        # @return [String, nil] why malloc would not be served by the library
        # @raise [Refusal]
        def objection(program, library, changes)
          return "#{program.executable} is linked statically: its malloc is its own" unless program.dynamic_linker

          out, err, status = ask(program, changes, "--list")
          mapped = status.success? ? files(out) : {}
          name = library || LIBC
          expected = mapped[name.b]
          return usurped(program, expected, changes) if expected && mapped.key?(LIBC)

          unless expected
            complaint(err, name) || "#{program.dynamic_linker} does not map #{name} into #{program.executable}"
          end
        rescue SystemCallError => e
          raise Refusal, "#{program.executable}: its dynamic linker #{program.dynamic_linker}: #{e.class.new.message}"
        end

        # @param err [String] what a process printed when it was started
        # @param library [String] as in LD_PRELOAD
        # @return [String, nil] that the dynamic linker left the library out, and why
        def complaint(err, library)
          err.scrub.each_line do |line|
            left_out = LEFT_OUT.match(line)
            return "the dynamic linker leaves out #{library}: #{reason(left_out)}" if
              left_out && left_out[:object] == library
          end
          nil
        end

        private

        def ask(program, changes, *options)
          Open3.capture3(changes, program.dynamic_linker, *options, program.executable)
        end

        def files(out)
          matches = out.b.lines.filter_map { |line| MAPPED.match(line) }
          matches.to_h { |match| [match[:name], path(match[:file] || match[:name])] }
        end

        # A path is bytes, whatever the locale.
        def path(bytes) = bytes.dup.force_encoding(Encoding.default_external)

        # The executable comes before what is preloaded. Where it does not call malloc, the C library tells; other
        # libraries may be linked to prefer a malloc of their own.
        def usurped(program, expected, changes)
          _, err, = ask(program, changes.merge(BIND))
          bindings = err.b.lines.filter_map { |line| BOUND.match(line) }
          bindings.select! { |match| match[:from] == program.executable.b || File.basename(match[:from]) == LIBC }
          return "#{program.dynamic_linker} does not say whose malloc #{program.executable} has" if bindings.empty?

          other = bindings.map { |match| path(match[:to]) }.find { |file| !File.identical?(file, expected) }
          "malloc in #{program.executable} is served by #{other}, not by #{expected}" if other
        end

        # ld.so says of a library for another processor only that it cannot open it.
        def reason(left_out)
          why = left_out[:why] || "it does not say why"
          there = why.start_with?("cannot open") && File.file?(left_out[:object])
          there ? "#{why}; the file is there, for another architecture it seems" : why
        end
      end
    end
  end
end
