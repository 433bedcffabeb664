# frozen_string_literal: true

module Memscope
  # What this process was started with, as the kernel keeps it in /proc/self/environ: what servers set in ENV is not in
  # it. A process title that is longer than the command line overwrites it, and Puma's often is. So it is read when this
  # is loaded, by whatever is there early: the railtie, Puma's plugin.
  #
  # @api private
  module Birth
    ENVIRON = "/proc/self/environ"
    # Of the rest, which may be secret, nothing is kept.
    KEPT = /\A(RAILS_ENV|RACK_ENV|PUMA_INHERIT_\d+)\z/
    private_constant :ENVIRON, :KEPT

    # @param text [String] as the kernel gives it
    # @return [Hash{String => String}, nil] RAILS_ENV, RACK_ENV and PUMA_INHERIT_*, as far as they were set; nil
    #   where it is overwritten
    def self.parse(text)
      pairs = text.split("\0").filter_map { |pair| pair.split("=", 2) if pair.include?("=") }
      pairs.to_h.slice(*pairs.map(&:first).grep(KEPT)).freeze unless pairs.empty?
    end

    # Of this process, or of the one that it was forked from; nil where it cannot be told.
    ENVIRONMENT = begin
      parse(File.binread(ENVIRON))
    rescue SystemCallError
      nil
    end
  end
end
