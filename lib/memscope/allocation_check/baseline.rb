# frozen_string_literal: true

require "json"

module Memscope
  class AllocationCheck
    # How many objects a block allocated when a baseline was last recorded. A file that is kept with the tests has these
    # numbers: by the check's name, by the versions of Ruby and Rails, with or without YJIT, and by class.
    # MEMSCOPE_UPDATE=1 in the environment records the numbers anew.
    #
    # @api private
    class Baseline
      UPDATE = "MEMSCOPE_UPDATE"
      FILE = "memory_baseline.json"

      # @return [String] what a baseline is valid for: "ruby 3.4, rails 8.0, yjit"
      def self.platform
        rails = "rails #{minor(::Rails.version)}" if defined?(::Rails.version)
        yjit = "yjit" if defined?(::RubyVM::YJIT.enabled?) && ::RubyVM::YJIT.enabled?
        ["ruby #{minor(RUBY_VERSION)}", rails, yjit].compact.join(", ")
      end

      def self.minor(version) = version[/\A\d+\.\d+/]
      private_class_method :minor

      # @return [String] path of the file: in test/ if that exists, else in spec/ if that exists, else in the working
      #   directory
      def self.path = File.join(%w[test spec].find { |directory| File.directory?(directory) } || ".", FILE)

      # @param name [String] of the check
      # @param path [String] of the file
      def initialize(name, path: Baseline.path)
        @name = name
        @path = path
      end

      # @param allocated [Hash{String => Integer}] objects by class; "objects" for all
      # @return [Hash{String => Range<Integer>}] how many objects may be allocated; when baselines are recorded, up to
      #   the numbers in `allocated`
      # @raise [Unavailable] if nothing has been recorded for this platform, or the file is not a file of baselines
      def limits(allocated)
        ENV[UPDATE] == "1" ? record(allocated) : recorded
        @counts.transform_values { |count| 0..count }
      end

      private

      def recorded
        text = File.exist?(@path) ? File.read(@path) : ""
        @counts = parsed(text).dig(@name, Baseline.platform) or
          raise Unavailable, "no baseline #{@name.inspect} for #{Baseline.platform} in #{@path}: run this test once " \
                             "with #{UPDATE}=1, and commit the file"
      end

      # Tests in other processes may record at the same time.
      def record(allocated)
        File.open(@path, File::RDWR | File::CREAT) do |file|
          file.flock(File::LOCK_EX)
          all = parsed(file.read)
          all[@name] = { **all.fetch(@name, {}), Baseline.platform => allocated.sort.to_h }.sort.to_h
          file.rewind
          file.write(JSON.pretty_generate(all.sort.to_h), "\n")
          file.truncate(file.pos)
        end
        @counts = allocated
      end

      def parsed(text)
        all = text.empty? ? {} : JSON.parse(text)
        raise Unavailable, "#{@path} cannot be read: it is not a file of baselines" unless baselines?(all)

        all
      rescue JSON::ParserError => e
        raise Unavailable, "#{@path} cannot be read: #{Field.excerpt(e.message)}"
      end

      # Whether a value has the form of the file: { name => { platform => { class => count } } }.
      def baselines?(value, depth = 3)
        return value.is_a?(Integer) if depth.zero?

        value.is_a?(Hash) && value.each_value.all? { |inner| baselines?(inner, depth - 1) }
      end
    end
    private_constant :Baseline
  end
end
