# frozen_string_literal: true

module Memscope
  module Launch
    # The proof that the expected allocator serves malloc, in the program that memscope has become, before its script.
    # A forked copy makes it, so that nothing of memscope stays in the process.
    class ProgramProof < Inside
      # Ends this process unless the expected allocator is proved to serve its malloc.
      def start
        answer = IO.popen("-") { |child| child ? child.read.scrub : report_from_copy }
        objection = answer.end_with?("\n") ? answer.chomp : worded(:proof_ended, status: Process.last_status)
        give_up(objection) unless objection.empty?
      rescue SystemCallError => e
        give_up(worded(:proof_failed, why: e.message))
      end

      private

      def report_from_copy
        $stdout.puts(objection.to_s.tr("\n", " "))
        $stdout.flush
      ensure
        exit!
      end

      # nil if the allocator is proved, and also in another Ruby, whose allocator memscope cannot identify.
      def objection
        load_memscope
        allocator = Memscope.allocator
        mismatch(allocator) || unheeded(allocator) || (MallocProfile.crash(allocator.version) if @order[:profiled])
      rescue LoadError => e
        complain(:not_proved, why: e.message)
      rescue StandardError, ScriptError => e
        worded(:proof_failed, why: "#{e.message} (#{e.class})")
      end

      def mismatch(allocator)
        unless allocator.proved?
          why = [allocator.proof, *allocator.reasons.slice(:name, :extension).values].join("; ")
          return worded(:allocator_unknown, why: why)
        end

        served = { allocator: [allocator.name, allocator.version].compact.join(" "), path: allocator.path }
        expected = @order[:expected]
        return worded(:served_by_another, **served, expected: expected) unless serves?(allocator, expected)

        worded(:conf_without_jemalloc, **served) if @order[:conf] && allocator.name != :jemalloc
      end

      def serves?(allocator, expected)
        return allocator.name.to_s == expected unless expected.start_with?("/")

        allocator.path && File.identical?(allocator.path, expected)
      end

      # An objection if jemalloc ignores part of its configuration.
      def unheeded(allocator)
        settings = allocator.settings.values.select { |setting| setting.ignored && setting.given }
        return if allocator.name != :jemalloc || settings.empty?

        ignored = settings.map { |setting| "#{setting.name}: #{setting.given.inspect}: #{setting.ignored}" }
        worded(:conf_ignored, settings: ignored.join("; "))
      end
    end
  end
end
