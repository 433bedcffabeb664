# frozen_string_literal: true

module Memscope
  # jemalloc's options in text form, as in MALLOC_CONF: "narenas:2,dirty_decay_ms:1000".
  # @api private
  module MallocConf
    # The next pair, as malloc_conf_next (jemalloc's src/jemalloc.c) reads it.
    PAIR = /\G([A-Za-z0-9_]*):([^,]*)(?:,|\z)/
    # A number in C's notation: 0x for hexadecimal, 0 for octal.
    NUMBER = /\A\s*[+-]?(0x\h+|\d+)\z/i
    # Options that jemalloc (5.1.0 to 5.3.1) accepts but does not report; `log` in a build with --enable-log only.
    UNREPORTED = %w[bin_shards slab_sizes lg_tcache_max narenas_ratio hpa_dirty_mult hpa_hugification_threshold_ratio
                    prof_log prof_unbias san_guard_small san_guard_large log].freeze

    class << self
      # @return [Array(Array<Array(String, String)>, String, nil)] the pairs that jemalloc reads, and the text
      #   from where it stops reading: empty if the text ends with a comma, nil if jemalloc reads all of it
      def parse(text)
        pairs = text.scan(PAIR)
        read = pairs.sum { |pair| pair.join(":").length + 1 }
        [pairs, text[read..]]
      end

      # Attributes the options that jemalloc reports to the texts that set them, and adds the texts' other options.
      # `confs` are Hashes of :source and :text, in jemalloc's order: a later one wins.
      def attribute(settings:, confs:, **)
        texts = confs.map { |conf| [conf[:source], *parse(Field.utf8(conf[:text].to_s))] }
        reported = settings.to_h { |option| [option[:name], option(*option.values_at(:name, :value), texts)] }
        others = texts.flat_map do |source, pairs, rest|
          others(source, pairs.reject { |name, _given| reported.key?(name) }, rest)
        end
        reasons = others.reject { |other| other[:ignored] }.to_h do |other|
          [other[:name].to_sym, "jemalloc takes this option and does not report its value"]
        end
        { settings: reported.values + others, reasons: reasons }
      end

      private

      # jemalloc 5.3.0 replaced the option lg_tcache_max by tcache_max, but still accepts lg_tcache_max.
      def option(name, value, texts)
        own = setting(name, value, texts)
        return own if own[:given] || name != "tcache_max"

        old = setting("lg_tcache_max", value.bit_length - 1, texts)
        old[:ignored] || value != 1 << old[:value] ? own : { **old, name: name, value: value }
      end

      # `source` is the last text that sets the option to its current value. `given` is the value in the last text that
      # names the option. jemalloc accepts the word "default" as the value of narenas only.
      def setting(name, value, texts)
        texts.each_with_object({ name: name, value: value, source: "default" }) do |(source, pairs, _rest), setting|
          given = pairs.reverse.assoc(name)&.last or next
          taken = value.is_a?(Integer) ? number(given) == value : given == value.to_s
          setting[:source] = source if taken
          setting[:given] = given
          taken ||= name == "narenas" && given == "default"
          setting[:ignored] = ("jemalloc did not take it: invalid, out of range or not possible here" unless taken)
        end
      end

      def number(text) = (Integer(text, exception: false) if text.match?(NUMBER))

      # A text's options that jemalloc does not report, and the rest of the text, which jemalloc does not read.
      def others(source, pairs, rest)
        unknown = "this jemalloc has no option of this name"
        found = pairs.map { |name, given| [name, given, (unknown unless UNREPORTED.include?(name))] }
        found << [rest, rest, "malformed: jemalloc stops reading here"] unless rest.to_s.empty?
        found.map { |name, given, ignored| { name: name, source: source, given: given, ignored: ignored } }
      end
    end
  end
  private_constant :MallocConf
end
