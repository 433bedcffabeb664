# frozen_string_literal: true

require_relative "../native"
require_relative "../reading"
require_relative "conf_text"
require_relative "spelling"
require_relative "value_text"

module Memscope
  class Lint < Reading
    # The options of the jemalloc that serves malloc: their names, and which values they take.
    class JemallocOptions
      # Other words for the same, and options of earlier versions that others, in other units, took the place of.
      SYNONYMS = { "arenas" => "narenas", "arena_max" => "narenas", "background_threads" => "background_thread" }.freeze
      REPLACED = { "decay_time" => "dirty_decay_ms", "lg_dirty_mult" => "dirty_decay_ms" }.freeze
      # jemalloc takes them and does not report them: what it takes for each can be told by its form only.
      SIZES = /\A(\d+-\d+:[1-9]\d?(\||\z))+\z/
      RATIO = /\A\d+(\.\d+)?\z/
      UNREPORTED = { "bin_shards" => SIZES, "slab_sizes" => SIZES, "lg_tcache_max" => /\A\d{1,2}\z/,
                     "narenas_ratio" => RATIO, "hpa_dirty_mult" => RATIO, "hpa_hugification_threshold_ratio" => RATIO,
                     "prof_log" => /\A(true|false)\z/, "prof_unbias" => /\A(true|false)\z/ }.freeze
      # Of more than it has room for jemalloc makes as many as it has (MALLOCX_ARENA_LIMIT in
      # include/jemalloc/internal/arena_types.h), and of times it takes what fits into 64 bits of nanoseconds.
      DECAY = (-1..Native::MAX_DECAY_MS)
      NUMBERS = { "narenas" => 1..4094, "dirty_decay_ms" => DECAY, "muzzy_decay_ms" => DECAY,
                  "max_background_threads" => 1..4, "lg_prof_sample" => 0..62, "lg_prof_interval" => -1..62 }.freeze
      WORDS = { "dss" => %w[disabled primary secondary], "percpu_arena" => %w[disabled percpu phycpu],
                "thp" => %w[default always never], "metadata_thp" => %w[disabled auto always],
                "junk" => %w[true false alloc free], "zero_realloc" => %w[alloc free abort] }.freeze
      private_constant :SYNONYMS, :REPLACED, :SIZES, :RATIO, :UNREPORTED, :DECAY, :NUMBERS, :WORDS

      # @param settings [Hash{Symbol => Allocator::Setting}]
      def initialize(settings)
        @settings = settings
        @names = settings.values.reject { |setting| setting.value.nil? }.map(&:name)
      end

      # @return [Boolean]
      def include?(name) = @names.include?(name) || unreported?(name)

      # @return [Boolean] whether jemalloc keeps for itself what it made of it
      def unreported?(name)
        setting = @settings[name.to_sym]
        !setting.nil? && setting.value.nil? && setting.ignored.nil?
      end

      # @param name [String] that is none of an option
      # @return [String, nil] what it was meant to be
      def meant(name) = replacing(name) ? nil : synonym(name) || Spelling.meant(name, @names)

      # @param name [String] that is none of an option
      # @return [String, nil] the option, in another unit, that took its place
      def replacing(name) = REPLACED[name.downcase]

      # @param name [String] of an option
      # @param text [String]
      # @return [String, nil] a text of that meaning that jemalloc takes; nil where it is not known to take any
      def fitting(name, text)
        return (text if UNREPORTED[name]&.match?(text)) if unreported?(name)

        return if name == "narenas" && text == "default" # which says nothing

        taken?(name, text) ? text : repaired(name, text)
      end

      private

      def repaired(name, text)
        case @settings[name.to_sym]&.value
        when true, false then ValueText.boolean(text)
        when Integer then NUMBERS.key?(name) ? number(name, text) : nil
        when String then WORDS.key?(name) ? ValueText.word(text, WORDS[name]) : nil
        end
      end

      def synonym(name) = SYNONYMS[name.downcase]

      # Whether jemalloc has taken this very text.
      def taken?(name, text)
        setting = @settings[name.to_sym]
        setting&.given == text && setting.ignored.nil? && in_range?(name, setting.value)
      end

      def in_range?(name, value) = !NUMBERS.key?(name) || NUMBERS[name].cover?(value)

      def number(name, text)
        name.end_with?("_ms") ? ValueText.milliseconds(text, NUMBERS[name]) : ValueText.number(text, NUMBERS[name])
      end
    end
    private_constant :JemallocOptions
  end
end
