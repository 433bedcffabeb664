# frozen_string_literal: true

module Memscope
  module Launch
    # The proof that the expected allocator serves malloc: before a program starts, by a short-lived Ruby in its
    # environment; and in the program itself, if that is Ruby, by a forked copy of the process.
    module Proof
      # The script of the short-lived Ruby. Its arguments are this file and the expected allocator; the last line of its
      # output is the answer.
      SCRIPT = <<~'RUBY'
        require ARGV.first
        allocator, objection = Memscope::Launch::Proof.attempt(ARGV.last)
        puts "", allocator ? "proved #{allocator}" : "not proved #{objection.tr("\n", " ")}"
      RUBY
      # jemalloc's messages about MALLOC_CONF.
      REJECTED = /^<jemalloc>: (.*\bconf.*)$/i
      UNBUILT = "this jemalloc was built without its profiler: memscope profile --backend=imports needs none"
      private_constant :SCRIPT, :REJECTED, :UNBUILT

      class << self
        # @param choice [AllocatorChoice]
        # @param pairs [String, nil] for MALLOC_CONF
        # @return [Environment] in which the chosen allocator is proved to serve malloc
        # @param profiled [Boolean] whether the pairs enable jemalloc's profiler because memscope was asked for it
        # @raise [Refusal] saying why it is not proved, or why its profiler is not enabled
        def environment(choice, pairs, profiled: false)
          environment = Environment.new(ENV)
          choice.library ? environment.preload(choice.library) : environment.drop_allocators
          environment.configure(pairs) if pairs
          allocator, version = probe(choice, environment.changes).split
          raise Refusal, MallocProfile.crash(version) if profiled && MallocProfile.crash(version)
          return environment if allocator == "jemalloc" || pairs.nil?

          raise Refusal, "MALLOC_CONF is for jemalloc, and this is #{allocator}"
        end

        # Ends this process unless the expected allocator serves its malloc; with --if-present only complains. Checks
        # this in a forked copy, so that nothing of memscope stays in this process.
        #
        # @param order [Handoff::Order] of `memscope exec`
        # @return [void]
        def enforce(order)
          objection = objection_of_a_copy(order[:expected], Handoff.load_path(order[:extension]))
          return unless objection
          return order.complain("#{objection}; the program continues (--if-present)") if order[:if_present]

          order.complain("#{objection}; the program is not started")
          exit!(order[:status])
        end

        # @param expected [String] jemalloc, glibc, or the path of a library
        # @return [Array(String, nil), Array(nil, String)] the allocator that is proved to serve malloc, and its version
        #   if that is known; or why the expected one is not proved
        def attempt(expected)
          require_relative "../../memscope"
          allocator = Memscope.allocator
          objection = mismatch(allocator, expected) || unheeded(allocator)
          objection ? [nil, objection] : [[allocator.name, allocator.short_version].compact.join(" "), nil]
        rescue StandardError, ScriptError => e
          [nil, "the proof failed: #{e.message} (#{e.class})"]
        end

        private

        def probe(choice, changes)
          require "open3"
          require "rbconfig"
          out, err, status = Open3.capture3(changes, *command(choice.name))
          refuse_complaints(err.scrub, choice.library)
          verdict, text = out.scrub.lines.last.to_s.match(/\A(proved|not proved) (.*)$/)&.captures
          raise Refusal, "the probe ended early: #{status}: #{err.scrub.strip.tr("\n", ' ')}" unless verdict
          raise Refusal, text if verdict != "proved"

          text
        end

        def command(expected)
          [RbConfig.ruby, "--disable=gems,rubyopt", *Handoff.load_path.map { |directory| "-I#{directory}" },
           "-e", SCRIPT, __FILE__, expected]
        end

        # Raises Refusal if jemalloc or the dynamic linker has complained on standard error. If a library is for another
        # architecture, ld.so says only that it cannot open the library.
        def refuse_complaints(err, library)
          rejected = err.scan(REJECTED).flatten.uniq
          rejected << UNBUILT if rejected.any?(/ prof:true\z/)
          raise Refusal, "jemalloc rejects MALLOC_CONF: #{rejected.join('; ')}" unless rejected.empty?

          ignored = err.match(/object '#{Regexp.escape(library.to_s)}' from LD_PRELOAD .*?(?: \((.+?)\))?: ignored/)
          return unless ignored

          why = ignored[1] || "no reason given"
          there = why.start_with?("cannot open") && File.file?(library)
          why += "; the file exists, likely for another architecture" if there
          raise Refusal, "the dynamic linker ignores #{library}: #{why}"
        end

        def objection_of_a_copy(expected, load_path)
          answer = IO.popen("-") { |child| child ? child.read.scrub : report_objection(expected, load_path) }
          return "the proof ended early: #{Process.last_status}" unless answer.end_with?("\n")

          answer.chomp unless answer == "\n"
        rescue SystemCallError => e
          "the proof failed: #{e.message}"
        end

        def report_objection(expected, load_path)
          $LOAD_PATH.unshift(*load_path)
          $stdout.puts(attempt(expected).last.to_s.chomp)
          $stdout.flush
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

        # An objection if jemalloc ignores part of its configuration.
        def unheeded(allocator)
          settings = allocator.settings.values.select { |setting| setting.ignored && setting.given }
          return if allocator.name != :jemalloc || settings.empty?

          why = settings.map { |setting| "#{setting.name}: #{setting.given.inspect}: #{setting.ignored}" }.join("; ")
          "jemalloc ignores part of its configuration: #{why}"
        end
      end
    end
  end
end
