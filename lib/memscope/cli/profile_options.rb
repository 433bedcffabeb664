# frozen_string_literal: true

require_relative "../profile/formats"

module Memscope
  module CLI
    # What `memscope profile` and `memscope leaks` take, of a program and of a process that listens.
    module ProfileOptions
      # In seconds: a day.
      LONGEST = 86_400

      private

      def declare_profiling(parser, rate)
        @rate = rate
        parser.on("--backend NAME", "jemalloc, or imports, which any malloc will do for") do |name|
          @backend = name.to_sym
        end
        parser.on("--rate BYTES", Integer, "from sample to sample, a power of two (#{rate})") { |bytes| @rate = bytes }
      end

      def declare_format(parser)
        @format = :text
        names = Profile::Formats::ALL.keys
        parser.on("--format NAME", names, "#{names.join(', ')} (text)") { |name| @format = name }
        parser.on("--output FILE", "write to FILE, which must not exist yet") { |path| @output = path }
      end

      def check_profiling
        MallocProfile.check(rate: @rate, backend: @backend || :auto)
      rescue ArgumentError => e
        raise Failure.new("--#{e.message[/(rate|backend): .*/].gsub(/(?<= ):(?=\w)/, '')}", Command::USAGE)
      end

      def check_seconds(name, seconds, least: 0)
        return if seconds.nil? || (seconds > least && seconds <= LONGEST)

        raise Failure.new("--#{name}: given #{seconds}, allowed: a number of seconds above #{least}, up to #{LONGEST}",
                          Command::USAGE)
      end
    end
  end
end
