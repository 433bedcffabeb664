# frozen_string_literal: true

module Memscope
  module Launch
    # Which allocator serves this process, against the one that is to. Runs in the process in question: the probe, and
    # the program itself.
    module Proof
      class << self
        # @param expected [String] jemalloc, glibc, or the path of a library
        # @return [Array(String, nil), Array(nil, String)] the allocator that is proved to serve malloc, or why this is
        #   not the expected one
        def attempt(expected)
          require_relative "../../memscope"
          allocator = Memscope.allocator
          objection = mismatch(allocator, expected) || unheeded(allocator)
          objection ? [nil, objection] : [allocator.name.to_s, nil]
        rescue StandardError, ScriptError => e
          [nil, "the proof failed: #{e.message} (#{e.class})"]
        end

        # The same in a copy of this process, so that nothing of memscope stays in this one.
        #
        # @param expected [String]
        # @param load_path [Array<String>] where memscope is
        # @return [String, nil] why not
        def objection_of_a_copy(expected, load_path)
          reader, writer = IO.pipe
          child = fork { answer(expected, load_path, writer) }
          writer.close
          said = reader.read.scrub
          _, status = Process.wait2(child)
          return "the proof ended early: #{status}" unless said.end_with?("\n")

          said.chomp unless said == "\n"
        rescue SystemCallError => e
          "the proof could not be made: #{e.message}"
        ensure
          reader&.close
        end

        private

        def answer(expected, load_path, writer)
          $LOAD_PATH.unshift(*load_path)
          writer.puts(attempt(expected).last.to_s.chomp)
          writer.close
        ensure
          exit!
        end

        def mismatch(allocator, expected)
          return if allocator.proved? && serves?(allocator, expected)

          unless allocator.proved?
            why = [allocator.proof, *allocator.reasons.slice(:name, :extension).values].join("; ")
            return "which allocator serves malloc could not be proved: #{why}"
          end

          "malloc is served by #{[allocator.name, allocator.version].compact.join(' ')} in #{allocator.path}, " \
            "not by #{expected}"
        end

        def serves?(allocator, expected)
          return allocator.name.to_s == expected unless expected.start_with?("/")

          allocator.path && File.realpath(allocator.path) == File.realpath(expected)
        end

        # What jemalloc did not take of MALLOC_CONF.
        def unheeded(allocator)
          settings = allocator.settings.values.select { |setting| setting.ignored && setting.given }
          return if allocator.name != :jemalloc || settings.empty?

          why = settings.map { |setting| "#{setting.name}: #{setting.given.inspect}: #{setting.ignored}" }.join("; ")
          "jemalloc does not take all of its configuration: #{why}"
        end
      end
    end
  end
end
