# frozen_string_literal: true

require "open3"

module Memscope
  module Launch
    # What the dynamic linker says before a program runs.
    module DynamicLinker
      # ld.so of glibc, of an object that it leaves out.
      LEFT_OUT = /object '(?<object>.+?)' from LD_PRELOAD cannot be preloaded(?: \((?<why>.+?)\))?: ignored/
      private_constant :LEFT_OUT

      class << self
        # Has a program's own dynamic linker list what it would map, without running the program.
        #
        # @param program [Program] that has one
        # @param library [String] as in LD_PRELOAD
        # @param changes [Hash{String => String, nil}] of the environment
        # @return [String, nil] why it would not map the library
        # @raise [Refusal]
        def objection(program, library, changes)
          out, err, status = Open3.capture3(changes, program.dynamic_linker, "--list", program.executable)
          return if status.success? && out.each_line.any? { |line| line.split.first == library }

          complaint(err, library) || "#{program.dynamic_linker} does not map #{library} into #{program.executable}"
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
