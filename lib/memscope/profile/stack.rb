# frozen_string_literal: true

module Memscope
  class Profile < Reading
    # One function or line in the stacks of a profile.
    class Frame < Record
      # @return [Boolean] whether it is a line of a file; false for <internal:…>
      def file? = kind == :ruby && !path.nil? && !path.start_with?("<internal:")

      # @return [Boolean] false for a native function of a stripped object
      def named? = !name.match?(/\+0x\h+\z/)

      # @return [String, nil] "app/models/report.rb:41"
      def place = path && [path, lineno].compact.join(":")

      # @return [String] "Report#render app/models/report.rb:41", "deflateInit2_"
      def to_s = [name, place].compact.join(" ")
    end

    # Allocations with the same frames, thread, tag, generation and class. In a growth, the numbers in GROWING are
    # growth.
    class Stack < Record
      # The numbers that are growth in a growth.
      GROWING = %i[live_bytes live_objects samples allocated_bytes allocated_objects freed_bytes freed_objects].freeze
    end

    # The retainer of the objects that one line allocated: a path to many of the sampled objects, found in a heap graph.
    class Holder < Record
      # @param unicode [Boolean] false: plain ASCII, except for names
      # @return [String] "Bus::HANDLERS → Array → Order"
      def to_s(unicode: true) = links.join(unicode ? " → " : " -> ").then { |text| unicode ? text : text.tr("×", "x") }
    end

    # The memory of one line, method, library …. In a growth, all numbers except the errors are growth.
    class Entry < Record
      # The minimum number of samples for an estimate.
      ENOUGH_SAMPLES = 10

      # @return [Boolean] whether there are enough samples for its numbers to mean something
      def estimated? = samples.abs >= ENOUGH_SAMPLES

      # @return [String] "app/models/report.rb:41 in Report#render", "[no GVL]"
      def to_s = lineno ? "#{path}:#{lineno} in #{name}" : name
    end
  end
end
