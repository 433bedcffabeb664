# frozen_string_literal: true

module Memscope
  # Numbers as people read them, in ASCII.
  # @api private
  module Quantity
    # 1 MiB in bytes.
    MEBIBYTE = 1_048_576
    TEXTS = Words.beside(__FILE__)

    module_function

    # @return [String] "45,649"
    def count(number) = number.to_s.gsub(/(?<=\d)(?=(\d{3})+\z)/, ",")

    # @return [String] "1,234.5", without the unit, for a column that names it; "?" for nil, which is unknown
    def mebibytes(bytes)
      return "?" unless bytes

      whole, tenth = format("%.1f", bytes.fdiv(MEBIBYTE)).split(".")
      text = "#{count(whole)}.#{tenth}"
      text == "-0.0" ? "0.0" : text
    end

    # The unit of a column of bytes, so that no row of a list of the largest is 0.0.
    Scale = Struct.new(:unit, :unit_bytes) do
      # @return [Scale] MiB, or KiB if all are below 1 MiB
      def self.of(numbers) = numbers.compact.map(&:abs).max.to_i < MEBIBYTE ? new("KiB", 1024) : new("MiB", MEBIBYTE)

      # @return [Boolean] whether the number is 0.0 in this unit
      def tiny?(bytes) = bytes.abs * 20 < unit_bytes

      # @return [String] "1,234.5"; "<0.1" for a number that is not 0, but 0.0 in this unit
      def text(bytes)
        return bytes.zero? ? "0.0" : "<0.1" if tiny?(bytes)

        Quantity.mebibytes(bytes * (MEBIBYTE / unit_bytes))
      end

      # @return [String] "+2.8", "-2.8", "0.0"
      def signed(bytes) = Quantity.signed_mebibytes(bytes * (MEBIBYTE / unit_bytes))
    end

    # @return [String] "+2.8", "-2.8", "0.0", without the unit
    def signed_mebibytes(bytes)
      text = mebibytes(bytes)
      bytes.positive? && text != "0.0" ? "+#{text}" : text
    end

    # @return [String] "2.8", "0.3 to 2.8", without the unit
    def mebibyte_range(bytes) = bytes.minmax.map { |bound| mebibytes(bound) }.uniq.join(" to ")

    # @return [String] "2.8 MiB", "16 KiB", "12 B" or "an unknown size"
    def size(bytes)
      return "an unknown size" unless bytes
      return "#{mebibytes(bytes)} MiB" if bytes.abs >= MEBIBYTE / 10
      return "#{count((bytes / 1024.0).round)} KiB" if bytes.abs >= 1024

      "#{bytes} B"
    end

    # @return [String] "2.8 MiB" (if both bounds round to it), "up to 2.8 MiB" or "0.3 to 2.8 MiB"
    def between(least, most)
      return "up to #{size(most)}" if least&.zero? && most&.positive?

      text = size(most)
      return text if mebibytes(least) == mebibytes(most)

      "#{text.end_with?('MiB') ? mebibytes(least) : size(least)} to #{text}"
    end

    # @param fall [Integer, Range<Integer>, nil] of RSS, by a purge
    # @param own [Integer, Range<Integer>, nil] the part of it that no other process shares
    # @return [String, nil] a sentence on how much the machine gains; nil if that is unknown, or if `fall` and `own`
    #   differ by less than 1 MiB (both bounds, if they are ranges)
    def gain(fall, own)
      fall, own = [fall || 0, own].map { |bytes| bytes.is_a?(Integer) ? (bytes..bytes) : bytes }
      return if own.nil? || (fall.begin - own.begin < MEBIBYTE && fall.end - own.end < MEBIBYTE)
      return loss(own) if own.begin <= -MEBIBYTE
      return if fall.end <= 0
      return TEXTS[:no_gain] unless own.end.positive?

      TEXTS.fill(:gain, amount: between(*own.minmax))
    end

    # @return [String] a sentence on how much the machine loses
    def loss(own)
      amount = own.size == 1 ? size(-own.end) : "up to #{size(-own.begin)}"
      TEXTS.fill(own.end.positive? ? :loss_or_gain : :loss, amount: amount, gain: size(own.end))
    end

    # @return [Integer, nil] the sum; nil if any of the numbers is unknown
    def total(numbers) = (numbers.sum unless numbers.include?(nil))

    # @return [String] "4,096 B"
    def exact(bytes) = "#{count(bytes)} B"

    # @return [String] "+4,096"
    def signed(number) = number.positive? ? "+#{count(number)}" : count(number)

    # @return [String] "24 ms", "0.7 ms"
    def milliseconds(microseconds) = format(microseconds < 9950 ? "%.1f ms" : "%.0f ms", microseconds.fdiv(1000))

    # @return [String] "3.9 s", "110 ms", "1 ms": a prediction
    def pause(milliseconds)
      return format("%.1f s", milliseconds / 1000) if milliseconds >= 950

      "#{[milliseconds.round(milliseconds < 95 ? 0 : -1), 1].max} ms"
    end

    # @return [String] "45 minutes"
    def duration(seconds)
      length, unit = { 86_400 => "days", 3600 => "hours", 60 => "minutes" }.find { |one, _| seconds >= 2 * one } ||
                     [1, "seconds"]
      counted((seconds / length.to_f).round, unit)
    end

    # @return [String] "3 pages", "1 page"
    def counted(number, plural) = "#{count(number)} #{number == 1 ? plural.delete_suffix('s') : plural}"
  end
end
