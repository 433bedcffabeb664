# frozen_string_literal: true

require_relative "../reading"
require_relative "../report/quantity"

module Memscope
  class Lint < Reading
    # What suits a process under glibc's malloc: the options that were given and do well are kept, and the others are
    # changed where the process has a reason for it.
    class GlibcPolicy
      MEBIBYTE = 1 << 20
      # Fewer than these are no harm.
      FEW_ARENAS = 8
      # In a container of less than this what glibc keeps of freed large blocks matters.
      SMALL_CONTAINER = 1024 * MEBIBYTE
      # Both thresholds at first (DEFAULT_MMAP_THRESHOLD_MIN); setting one fixes both.
      THRESHOLD = 131_072
      # Above these glibc keeps more than it would by itself.
      MOST = { "trim_threshold" => 64 * MEBIBYTE, "mmap_threshold" => 32 * MEBIBYTE, "top_pad" => 64 * MEBIBYTE }.freeze
      DEBUGGING = { "perturb" => "every block is written to when it is allocated and freed" }.freeze
      private_constant :MEBIBYTE, :FEW_ARENAS, :SMALL_CONTAINER, :THRESHOLD, :MOST, :DEBUGGING

      # @return [Hash{String => Array(String, String)}] value and reason of each option
      attr_reader :pairs

      # @param settings [Array<Setting>] what holds now
      # @param surroundings [Surroundings]
      # @param meant [Hash{String => String}] the options that the environment was to set
      def initialize(settings, surroundings, meant)
        @settings = settings.to_h { |setting| [setting.name, setting] }
        @values = { **@settings.transform_values(&:value), **meant.transform_values { |text| Integer(text, 10) } }
        @surroundings = surroundings
        @meant = meant
        @pairs = meant.to_h { |name, value| [name, [value, given?(name, value) ? "as given" : "as it was meant"]] }
        @problems = []
        judge
      end

      # @param replacement [String, nil] what to paste
      # @return [Array<Problem>]
      def problems(replacement)
        @problems.map do |id, severity, text|
          Problem.capture({ id: id, severity: severity, text: text, replacement: replacement })
        end
      end

      private

      def given?(name, value)
        setting = @settings[name]
        setting.given == value && setting.problem.nil?
      end

      def judge
        judge_arenas
        judge_excess
        judge_container
        judge_debugging
        judge_useless
      end

      def judge_arenas
        limit = @values["arena_max"]
        threads = @surroundings.threads
        return if threads.nil?

        excessive = [limit, threads].min > [FEW_ARENAS, 4 * @surroundings.parallel].max
        crowd = "#{threads} threads on #{@surroundings.processors}"
        report("arena_max", :too_many_arenas, :warning, "up to #{limit} arenas for #{crowd}") if excessive
        return if !excessive && (@meant.key?("arena_max") || threads < 2)

        wanted = @surroundings.arenas
        pair("arena_max", wanted, "each of up to #{limit} arenas keeps freed memory of its own; of #{crowd} " \
                                  "#{wanted == 1 ? 'one runs' : 'few allocate'} at the same time")
      end

      def judge_excess
        MOST.each do |name, most|
          value = @values[name]
          next unless @meant.key?(name) && value > most

          report(name, :never_returned, :warning,
                 "#{Report::Quantity.size(value)}: glibc keeps so much free memory in each arena")
          @pairs.delete(name)
        end
      end

      # Measured: freed strings of 1 to 3 MB left 38 MB behind, and nothing with the threshold fixed; 400 KB then took
      # 0.4 ms to allocate, most of it page faults, in place of 0.01 ms.
      def judge_container
        limit = @surroundings.memory_limit_bytes
        return if limit.nil? || limit >= SMALL_CONTAINER
        return if %w[trim_threshold mmap_threshold].any? { |name| @pairs.key?(name) }

        pair("trim_threshold", THRESHOLD,
             "in a container of #{Report::Quantity.size(limit)} freed large blocks should go back at once; by itself " \
             "glibc raises the threshold, up to 64 MiB. Each block of 128 KiB or more then costs page faults")
      end

      def judge_debugging
        DEBUGGING.each do |name, effect|
          next unless @values[name].to_i.positive?

          report(name, :debugging, :warning, "#{effect}: for debugging only")
          @pairs.delete(name)
        end
      end

      def judge_useless
        without_effect("check", "glibc 2.34 and later look at it in libc_malloc_debug.so only", &:positive?)
        return unless @surroundings.thp_enabled? == false

        without_effect("hugetlb", "this process has huge pages turned off, as CRuby does it") { |value| value == 1 }
      end

      def without_effect(name, reason)
        return unless @meant.key?(name) && yield(@values[name])

        report(name, :without_effect, :info, reason)
        @pairs.delete(name)
      end

      def pair(name, value, reason) = @pairs[name] = [value.to_s, reason]

      # What was meant and has not come about is no harm yet; whoever reports it as that tells the rest.
      def report(name, id, severity, text)
        @problems << [id, severity, "#{name}: #{text}"] if @settings[name].value == @values[name]
      end
    end
    private_constant :GlibcPolicy
  end
end
